import { randomBytes } from 'node:crypto';
import { expect } from 'chai';
import type { ApiResponse, Client } from '../../support/client.ts';
import { controlSql, type TestTenant, type World } from '../../support/world.ts';

export const usersPath = '/api/v1/Users';
export const rolesPath = '/api/v1/Roles';

export const newAddress = (): string => `new-${randomBytes(4).toString('hex')}@people.test`;

/** The body of an invitation. */
export const invitation = (changes: object = {}) => ({
  Email: newAddress(),
  FirstName: 'Nora',
  LastName: 'Newman',
  Role: 'Member',
  Scope: 'All',
  EntityId: null,
  ...changes,
});

/** The body of a PUT that changes nothing but the given fields. */
export const changed = ({ body }: ApiResponse, changes: object = {}) => {
  const { FirstName, LastName, Role, Scope, EntityId } = body;
  return { FirstName, LastName, Role, Scope, EntityId, ...changes };
};

/** Returns the record of the user of a client. */
export async function ownRecord(
  world: World,
  client: Client,
  tenant: TestTenant = world.acme,
): Promise<ApiResponse> {
  const { body } = await client.get('/api/v1/auth/me');
  const [row] = await controlSql<{ id: string }>(world, 'select id from users where guid = ?', [
    body.userGuid,
  ]);
  const admin = await world.login(tenant);
  return admin.get(`${usersPath}/${row?.id}`);
}

/**
 * Creates a role by the API.
 * @returns its record
 */
export async function addRole(admin: Client, permissions: readonly string[], name?: string) {
  const Name = name ?? `Role ${randomBytes(4).toString('hex')}`;
  const { status, body } = await admin.post(rolesPath, { Name, Permissions: permissions });
  expect(status, JSON.stringify(body)).to.equal(201);
  return body as { Id: number; Name: string; Permissions: string[] };
}

/** Expects a problem with this status and code. */
export function expectProblem({ status, body }: ApiResponse, expected: number, code: string): void {
  expect(status, JSON.stringify(body)).to.equal(expected);
  expect(body.code, JSON.stringify(body)).to.equal(code);
}

/**
 * Inserts rows of the control database that its triggers would change, remove or take long for.
 */
export async function insertWithoutTriggers(
  world: World,
  table: string,
  text: string,
): Promise<void> {
  await controlSql(world, `alter table ${table} disable trigger user`);
  await controlSql(world, text);
  await controlSql(world, `alter table ${table} enable trigger user`);
}
