import { randomBytes, randomUUID } from 'node:crypto';
import { expect } from 'chai';
import { type ApiResponse, Client } from '../../support/client.ts';
import type { PersonClaims, TestProvider } from '../../support/identity-provider.ts';
import { controlSql, type TestTenant, type World } from '../../support/world.ts';

export const providersPath = '/api/v1/IdentityProviders';
const exchangePath = '/api/v1/auth/exchange';
export const identitiesPath = '/api/v1/auth/identities';

/** A provider as a tenant has configured it. */
export interface ConfiguredProvider {
  readonly Id: number;
  readonly Guid: string;
}

/**
 * Calls a function while a process of the service runs that knows no providers, as after an
 * upgrade that is not complete.
 */
export async function withFormerBuild<Result>(
  world: World,
  call: () => Promise<Result>,
): Promise<Result> {
  const id = randomUUID();
  await controlSql(
    world,
    `insert into processes (id, kind, host, pid, build, tenant_head, control_head, seen_at)
     values (?, 'service', 'elsewhere', 17, '0.2.0', null, '0009-held-passkeys', now() + interval '1 minute')`,
    [id],
  );
  try {
    return await call();
  } finally {
    await controlSql(world, 'delete from processes where id = ?', [id]);
  }
}

/** Returns an account at a provider that no other test has. */
export function newPerson(claims: Readonly<Record<string, unknown>> = {}): PersonClaims {
  return { sub: `person-${randomBytes(6).toString('hex')}`, ...claims };
}

/** The ways in which people of a world sign in at a provider. */
export function signInWorld(world: World, provider: TestProvider) {
  /** Sends an ID token to be exchanged. */
  const exchange = (idToken: string, tenant = world.acme, url = world.url): Promise<ApiResponse> =>
    new Client(url).post(exchangePath, { idToken }, { 'X-Tenant': tenant.guid });

  return {
    exchange,

    /** Adds the provider to a tenant, as its administrator. */
    async configure(tenant: TestTenant, changes: object = {}): Promise<ConfiguredProvider> {
      const admin = await world.login(tenant);
      const { status, body } = await admin.post(providersPath, {
        Name: 'Staff',
        Issuer: provider.issuer,
        ClientIds: [provider.clientIds[0]],
        ...changes,
      });
      expect(status, JSON.stringify(body)).to.equal(201);

      return body;
    },

    /** Links an account at the provider to the account of a person who has just logged in. */
    async link(client: Client, person: PersonClaims): Promise<number> {
      const idToken = await provider.signIn(person);
      const { status, body } = await client.post(identitiesPath, { idToken });
      expect(status, JSON.stringify(body)).to.equal(201);

      return body.id;
    },

    /** Signs a person in at the provider, and returns a client with the tokens of the exchange. */
    async signIn(person: PersonClaims, tenant = world.acme): Promise<Client> {
      const { status, body } = await exchange(await provider.signIn(person), tenant);
      expect(status, JSON.stringify(body)).to.equal(200);

      return new Client(world.url, body);
    },
  };
}
