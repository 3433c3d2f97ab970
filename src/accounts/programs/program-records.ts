import { addedBy, requireNoFormerBuild } from '../../control/former-builds.ts';
import { problem } from '../../lib/problems.ts';
import { networkText } from '../../tenancy/program-networks.ts';
import { noPassword } from '../auth/passwords.ts';
import type { Managed, ManagedKind } from '../people/change-managed-user.ts';
import type { HeldEntity, PeopleTransaction } from '../people/change-people.ts';
import { errorsOfEntity, requireValidUser } from '../people/user-records.ts';
import {
  type ProgramFields,
  programById,
  programView,
  volatileProgramFields,
} from './program-table.ts';

/** The maximum number of programs of a tenant: their plain list has no pages. */
export const maxPrograms = 500;

const managedProgram = `
  select u.id::float8 as id, r.permissions, u.entity_id::float8 as "entityId",
         to_json(u.entity_since) #>> '{}' as "entitySince"
    from users u join roles r on r.id = u.role_id
   where u.tenant_id = $1 and u.id = $2 and u.kind = 'program'`;

/** Programs, as administrators manage them. */
export const managedPrograms: ManagedKind<Managed, typeof programView> = {
  path: '/api/v1/Programs',
  documentation: {
    tag: 'Program',
    description:
      'A program calls the API with keys of its own, and ends with nobody’s login. It has the ' +
      'permissions of its role, as a user has. Nobody makes or changes a program, or makes a key ' +
      'of one, without every permission that it has.',
  },
  view: programView,
  volatile: volatileProgramFields,
  selectManaged: (tenantId, id) => ({
    name: 'managed_program',
    text: managedProgram,
    values: [tenantId, id],
  }),
  byId: programById,
};

/** The fields of a program of which the contract refuses none. */
type CheckedProgram = Partial<Pick<ProgramFields, 'Role'>>;

/**
 * Requires that a program may have these fields.
 * @param errors of other fields, which the caller has found
 * @param program that shall get them; undefined for a new one
 * @returns the id of the role
 * @throws {Problem} `validation_failed`; `forbidden` when the caller may not grant the role
 */
export async function requireValidProgram(
  transaction: PeopleTransaction,
  tenantId: number,
  { Role }: CheckedProgram,
  entity: HeldEntity,
  errors = {},
  program?: Managed,
): Promise<number> {
  const all = { ...errors, ...errorsOfEntity(program, entity) };

  return requireValidUser(transaction, tenantId, { Role }, all);
}

const countPrograms = `
  select count(*)::int as count from users where tenant_id = $1 and kind = 'program'`;
const insertProgram = `
  insert into users (tenant_id, guid, kind, email, password_hash, first_name, last_name, role_id, scope, entity_id,
                     entity_since, networks, confirmed_at)
  select $1, guid, 'program', 'program:' || guid, '${noPassword}', $2, '', $3, $4, $5, $6, $7::cidr[], now()
    from (select gen_random_uuid() as guid) new
  returning id::float8 as id`;

/**
 * Adds a program.
 * @returns its id
 * @throws {Problem} those of `requireValidProgram`; `limit_reached`; `migration_pending` while
 *   a build runs that knows no programs
 */
export async function addProgram(
  transaction: PeopleTransaction,
  tenantId: number,
  fields: ProgramFields,
  entity: HeldEntity,
): Promise<number> {
  const { query } = transaction;
  await requireNoFormerBuild(query, addedBy.programs);
  const roleId = await requireValidProgram(transaction, tenantId, fields, entity);
  const [counted] = await query<{ count: number }>('count_programs', countPrograms, [tenantId]);
  if ((counted?.count ?? 0) >= maxPrograms) throw problem('limit_reached');

  const [added] = await query<{ id: number }>('insert_program', insertProgram, [
    tenantId,
    ...valuesOf(fields, roleId, entity),
  ]);
  return added?.id ?? 0;
}

const updateProgram = `
  update users set first_name = $2, role_id = $3, scope = $4, entity_id = $5, entity_since = $6,
                   networks = $7::cidr[]
   where id = $1`;

/** @throws {Problem} those of `requireValidProgram` */
export async function replaceProgram(
  transaction: PeopleTransaction,
  tenantId: number,
  program: Managed,
  fields: ProgramFields,
  entity: HeldEntity,
): Promise<void> {
  const roleId = await requireValidProgram(transaction, tenantId, fields, entity, {}, program);
  await transaction.query('update_program', updateProgram, [
    program.id,
    ...valuesOf(fields, roleId, entity),
  ]);
}

/** Returns the values that administrators decide, in the order of the statements. */
function valuesOf(
  { Name, Scope, EntityId, Networks }: ProgramFields,
  roleId: number,
  entity: HeldEntity,
): unknown[] {
  const networks = new Set(Networks.map(networkText));

  return [Name, roleId, Scope, EntityId, entity.since, [...networks]];
}
