import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect } from 'chai';
import * as openid from 'openid-client';
import { ClientCredentials } from 'simple-oauth2';
import { controlSql, type TestTenant, useWorld } from '../../support/world.ts';
import { storeKey, storeProgram } from './stored-programs.ts';

const tokenPath = '/api/v1/auth/token';
const mePath = '/api/v1/auth/me';
const tokenSeconds = 900;

interface OwnProgram {
  readonly guid: string;
  readonly key: string;
  readonly keyId: string;
  readonly tenant: TestTenant;
}

describe('programs with clients that others have written', () => {
  const world = useWorld();
  const programs: OwnProgram[] = [];

  before(async () => {
    for (const tenant of [world.acme, world.globex]) {
      const { id, guid } = await storeProgram(world, tenant);
      const { key, id: keyId } = await storeKey(world, tenant, id);
      programs.push({ guid, key, keyId, tenant });
    }
  });

  /** Expects that `me` has described a program, and no other one. */
  function expectProgram(me: object, { guid, keyId, tenant }: OwnProgram): void {
    expect(me).to.include({ userGuid: guid, tokenId: keyId, tenantGuid: tenant.guid });
  }

  /** Stores a key that has been revoked. */
  async function addRevoked({ guid, tenant }: OwnProgram): Promise<string> {
    const [row] = await controlSql<{ id: string }>(world, 'select id from users where guid = ?', [
      guid,
    ]);
    const { id, key } = await storeKey(world, tenant, Number(row?.id));
    await controlSql(world, 'update program_keys set revoked_at = now() where id = ?', [id]);
    return key;
  }

  describe('openid-client', () => {
    const configure = ({ guid }: OwnProgram, auth: openid.ClientAuth): openid.Configuration => {
      const server = { issuer: world.url, token_endpoint: `${world.url}${tokenPath}` };
      const configuration = new openid.Configuration(server, guid, undefined, auth);
      openid.allowInsecureRequests(configuration); // the service of the test speaks http
      return configuration;
    };

    for (const [method, auth] of [
      ['client_secret_post', openid.ClientSecretPost],
      ['client_secret_basic', openid.ClientSecretBasic],
    ] as const) {
      it(`openid-client gets an access token by ${method}, and reads with it as the program of its tenant`, async () => {
        for (const program of programs) {
          const configuration = configure(program, auth(program.key));

          const tokens = await openid.clientCredentialsGrant(configuration, { scope: 'ignored' });
          const response = await openid.fetchProtectedResource(
            configuration,
            tokens.access_token,
            new URL(`${world.url}${mePath}`),
            'GET',
          );

          expect(tokens.expiresIn()).to.be.within(1, tokenSeconds);
          expect(tokens.refresh_token).to.equal(undefined);
          expectProgram((await response.json()) as object, program);
        }
      });

      it(`openid-client learns by ${method} that a key is not accepted`, async () => {
        const [program] = programs as [OwnProgram];
        const configuration = configure(program, auth(await addRevoked(program)));

        const error = await openid.clientCredentialsGrant(configuration).then(
          () => undefined,
          (thrown: unknown) => thrown,
        );

        if (!(error instanceof openid.WWWAuthenticateChallengeError)) throw error;
        expect(error.status).to.equal(401);
        expect(error.cause.map(({ scheme }) => scheme)).to.deep.equal(['basic']);
        expect(await error.response.json()).to.include({ error: 'invalid_client' });
      });
    }
  });

  describe('simple-oauth2', () => {
    const configure = (
      { guid }: OwnProgram,
      secret: string,
      authorizationMethod: 'header' | 'body',
    ): ClientCredentials =>
      new ClientCredentials({
        client: { id: guid, secret },
        auth: { tokenHost: world.url, tokenPath },
        options: { authorizationMethod },
      });

    for (const method of ['header', 'body'] as const) {
      it(`simple-oauth2 gets an access token with the secret in the ${method}, and the program reads with it`, async () => {
        for (const program of programs) {
          const given = await configure(program, program.key, method).getToken({});
          const { status, body } = await world.anonymous
            .withToken(given.token.access_token as string)
            .get(mePath);

          expect(given.expired()).to.equal(false);
          expect(given.token.token_type).to.equal('Bearer');
          expect(status).to.equal(200);
          expectProgram(body, program);
        }
      });

      it(`simple-oauth2 learns that a key in the ${method} is not accepted`, async () => {
        const [program] = programs as [OwnProgram];
        const client = configure(program, await addRevoked(program), method);

        const error = await client.getToken({}).then(
          () => undefined,
          (thrown: { data?: { payload?: { error?: string } } }) => thrown,
        );

        expect(error?.data?.payload?.error).to.equal('invalid_client');
      });
    }
  });

  describe('curl', () => {
    const curl = async (...args: string[]): Promise<string> =>
      (await promisify(execFile)('curl', ['-sS', '--noproxy', '*', ...args])).stdout;

    before(async function () {
      if (!(await curl('--version').catch(() => undefined))) this.skip();
    });

    it('curl reads with a key as the bearer token, as the program of its tenant', async () => {
      for (const program of programs) {
        const me = await curl(
          `${world.url}${mePath}`,
          '-H',
          `Authorization: Bearer ${program.key}`,
        );

        expectProgram(JSON.parse(me), program);
      }
    });

    it('curl exchanges a key for an access token by -u and by -d, and reads with it', async () => {
      const grant = ['-d', 'grant_type=client_credentials'];

      for (const program of programs) {
        const { guid, key } = program;
        const ways = [
          ['-u', `${guid}:${key}`],
          ['-d', `client_id=${guid}`, '-d', `client_secret=${key}`],
        ];

        for (const way of ways) {
          const answer = JSON.parse(await curl(`${world.url}${tokenPath}`, ...way, ...grant));
          expect(answer).to.include({ token_type: 'Bearer' });

          const header = `Authorization: Bearer ${answer.access_token}`;
          expectProgram(JSON.parse(await curl(`${world.url}${mePath}`, '-H', header)), program);
        }
      }
    });
  });
});
