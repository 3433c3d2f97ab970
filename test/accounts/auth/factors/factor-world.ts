import { createHmac, randomBytes } from 'node:crypto';
import { expect } from 'chai';
import type { ApiResponse, Client } from '../../../support/client.ts';
import { controlSql, type TestTenant, type World } from '../../../support/world.ts';
import { claimsOf } from '../forge.ts';

const loginPath = '/api/v1/auth/login';
export const verifyPath = '/api/v1/auth/login/verify';
const setupPath = '/api/v1/auth/login/setup';
export const factorsPath = '/api/v1/auth/factors';

/** A person of a test, with a password. */
export interface Person {
  readonly tenant: TestTenant;
  readonly email: string;
  readonly password: string;
}

const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567';

/**
 * Computes a code as RFC 4226 and RFC 6238 describe it, by no library of the service.
 * @param step the time in units of 30 s since 1970
 */
export function codeOf(secret: string, step: number): string {
  const bits = [...secret]
    .map(digit => alphabet.indexOf(digit).toString(2).padStart(5, '0'))
    .join('');
  const key = Buffer.from((bits.match(/.{8}/g) ?? []).map(byte => Number.parseInt(byte, 2)));
  const counter = Buffer.alloc(8);
  counter.writeBigUInt64BE(BigInt(step));
  const digest = createHmac('sha1', key).update(counter).digest();
  const offset = (digest.at(-1) ?? 0) & 15;

  return String((digest.readUInt32BE(offset) & 0x7fffffff) % 1_000_000).padStart(6, '0');
}

/** The people of a world and their second factors. */
export function factorWorld(world: World) {
  const header = (tenant: TestTenant) => ({ 'X-Tenant': tenant.guid });
  const step = () => Math.floor((Date.now() / 1_000 + world.clock.offsetSeconds) / 30);

  return {
    header,
    /** The code of now; `steps` of 30 s later or earlier. */
    code: (secret: string, steps = 0) => codeOf(secret, step() + steps),
    /** Lets the time of a code pass, for all processes of the world. */
    passCode: () => {
      world.clock.offsetSeconds += 30;
    },

    /** Adds a person with a role of its own, who has logged in. */
    add: async (tenant: TestTenant, permissions: string[] = ['full.read']) => {
      const client = await world.loginAs(tenant, { permissions });
      const { userGuid, role } = (await client.get('/api/v1/auth/me')).body;
      const password = `correct horse ${randomBytes(6).toString('hex')}`;
      // The person gets no notice of it.
      const [user] = await controlSql<{ email: string; id: string; role_id: string }>(
        world,
        `update users set password_hash = ?
          where guid = ? and set_config('app.renews_password', 'true', true) = 'true'
        returning email, id, role_id`,
        [await world.passwords.hash(password), userGuid],
      );
      const person: Person = { tenant, email: user?.email ?? '', password };

      return { person, client, role, userId: Number(user?.id), roleId: Number(user?.role_id) };
    },

    login: ({ tenant, email, password }: Person, url = world.url): Promise<ApiResponse> =>
      world.anonymous.at(url).post(loginPath, { email, password }, header(tenant)),
    verify: ({ tenant }: Person, body: object, url = world.url): Promise<ApiResponse> =>
      world.anonymous.at(url).post(verifyPath, body, header(tenant)),
    setUp: ({ tenant }: Person, body: object, confirm = false): Promise<ApiResponse> =>
      world.anonymous.post(confirm ? `${setupPath}/confirm` : setupPath, body, header(tenant)),

    /** Adds and confirms an authenticator app of the client. */
    addTotp: async (client: Client, name?: string) => {
      const added = await client.post(`${factorsPath}/totp`, name === undefined ? {} : { name });
      expect(added.status, JSON.stringify(added.body)).to.equal(201);
      const { id, secret } = added.body;
      const code = codeOf(secret, step());
      const confirmed = await client.post(`${factorsPath}/${id}/confirm`, { code });
      expect(confirmed.status, JSON.stringify(confirmed.body)).to.equal(200);
      world.clock.offsetSeconds += 30;

      return { id, secret, recoveryCodes: confirmed.body.recoveryCodes as string[] };
    },

    /** Lets time pass for a session, as if its login and its proofs were so much older. */
    age: (client: Client, minutes: number) =>
      controlSql(
        world,
        `update sessions set created_at = created_at - ? * interval '1 minute',
                verified_at = verified_at - ? * interval '1 minute' where id = ?`,
        [minutes, minutes, claimsOf(client.tokens?.accessToken ?? '').sid],
      ),
  };
}
