import { randomBytes } from 'node:crypto';
import { mock } from 'node:test';
import { expect } from 'chai';
import { SecretBox } from '../../../src/control/secret-box.ts';
import { keyRetirementSeconds } from '../../../src/control/token-lifetime.ts';
import { addClient } from '../../../src/operator/credentials/clients.ts';
import { disableKey, rotateKey } from '../../../src/operator/credentials/keys.ts';
import { resealSecrets } from '../../../src/operator/credentials/reseal.ts';
import { listKeys } from '../../../src/operator/registry/read-tenants.ts';
import { Client } from '../../support/client.ts';
import { announcedMs, eventually } from '../../support/eventually.ts';
import { unlessLate } from '../../support/late-refusals.ts';
import { runCommand } from '../../support/run-command.ts';
import { startServerBeside } from '../../support/server-beside.ts';
import { controlSql, type TestTenant, useWorld } from '../../support/world.ts';
import { expectNotLogged } from './secrets.ts';

const path = '/api/v1/EntityStatus';

describe('signing keys', () => {
  const world = useWorld();
  /** URL of the second process of the service. */
  let otherUrl: string;
  const secrets = new Set<string>();

  before(async () => {
    otherUrl = (await world.startAnotherServer()).url;
  });

  const keys = (slug = 'acme') => listKeys(world.installation, slug);
  const active = async (slug = 'acme'): Promise<string[]> =>
    (await keys(slug)).filter(({ status }) => status === 'active').map(({ kid }) => kid);
  const kidOf = ({ tokens }: { tokens: { accessToken: string } | undefined }): string => {
    const [header = ''] = (tokens?.accessToken ?? '').split('.');
    return JSON.parse(Buffer.from(header, 'base64url').toString()).kid;
  };
  const login = async (tenant: TestTenant = world.acme, url = world.url): Promise<Client> => {
    const response = await world.anonymous
      .at(url)
      .post('/api/v1/auth/login', tenant.admin, { 'X-Tenant': tenant.guid });
    expect(response.status).to.equal(200);
    const { accessToken, refreshToken } = response.body;
    secrets.add(accessToken).add(refreshToken);
    return new Client(url, { accessToken, refreshToken });
  };
  const refresh = async (
    client: Client,
    url = client.url,
    tenant = world.acme,
  ): Promise<Client> => {
    const { refreshToken } = client.tokens ?? {};
    const response = await world.anonymous
      .at(url)
      .post('/api/v1/auth/refresh', { refreshToken }, { 'X-Tenant': tenant.guid });
    expect(response.status).to.equal(200);
    expect(response.body.code).to.equal(undefined);
    secrets.add(response.body.accessToken).add(response.body.refreshToken);
    return new Client(url, response.body);
  };
  const statuses = async (client: Client): Promise<number[]> =>
    Promise.all([world.url, otherUrl].map(async url => (await client.at(url).get(path)).status));

  describe('rotation', () => {
    it('eight rotations under load, in two processes, refuse no valid token', async () => {
      const urls = [world.url, otherUrl];
      const clients = await Promise.all(
        urls.flatMap(url => [1, 2, 3, 4].map(() => login(world.acme, url))),
      );
      const statusCounts: Record<number, number> = {};
      let calls = 0;
      let stop = false;

      const load = clients.map(async (first, worker) => {
        let client = first;
        for (let i = 0; !stop; i++) {
          const { status } =
            (await unlessLate(() => client.at(urls[(i + worker) % 2] ?? '').get(path))) ?? {};
          calls++;
          if (status === undefined) continue;
          statusCounts[status] = (statusCounts[status] ?? 0) + 1;
          // The new token is used at once in the other process.
          if (i % 10 === 9) client = await refresh(client, urls[i % 2]);
        }
      });

      const startedAt = performance.now();
      const seen = new Set<string>();
      try {
        for (let rotation = 0; rotation < 8; rotation++) {
          const until = calls + 25;
          seen.add((await rotateKey(world.installation, 'acme')).kid);
          expect(await active()).to.have.length(1);
          await eventually(() => calls >= until);
        }
      } finally {
        stop = true;
      }

      await Promise.all(load);
      const seconds = (performance.now() - startedAt) / 1_000;
      console.log(
        `      ${calls} calls in ${seconds.toFixed(1)} s, refused: ${Object.keys(statusCounts).filter(status => status !== '200')}`,
      );

      expect(seen.size).to.equal(8);
      expect(Object.keys(statusCounts), JSON.stringify(statusCounts)).to.deep.equal(['200']);
      for (const client of clients) {
        expect(await statuses(client), 'tokens of the first key').to.deep.equal([200, 200]);
      }
    });

    it('after a rotation every process signs with the new key, and the former key verifies', async () => {
      const before = await login();
      const { kid } = await rotateKey(world.installation, 'acme');
      expect(kid).to.not.equal(kidOf(before));

      for (const url of [world.url, otherUrl]) {
        await eventually(async () => kidOf(await login(world.acme, url)) === kid, announcedMs);
      }
      expect(await statuses(before)).to.deep.equal([200, 200]);

      const [former, present] = (await keys()).slice(-2);
      expect(former).to.include({ kid: kidOf(before), status: 'retiring' });
      expect(Date.now() - Date.parse(former?.retiredAt ?? '')).to.be.below(60_000);
      expect(present).to.include({ kid, status: 'active', retiredAt: null });
    });

    it('a key that was rotated on a machine whose clock is an hour slow still verifies tokens', async () => {
      const before = await login();
      mock.timers.enable({ apis: ['Date'], now: Date.now() - 3_600_000 });
      const { kid } = await rotateKey(world.installation, 'acme').finally(() =>
        mock.timers.reset(),
      );
      await eventually(async () => kidOf(await login()) === kid, announcedMs);
      expect(await statuses(before)).to.deep.equal([200, 200]);
    });

    it('ten concurrent rotations add ten keys and leave exactly one active', async () => {
      const before = (await keys()).length;
      const rotations = await Promise.all(
        Array.from({ length: 10 }, () => rotateKey(world.installation, 'acme')),
      );

      const made = rotations.map(({ kid }) => kid);
      expect(new Set(made).size).to.equal(10);

      const now = await active();
      expect(now).to.have.length(1);
      expect(made).to.include(now[0]);
      expect(await keys()).to.have.length(before + 10);
    });

    it('a rotation changes no key and no token of another tenant', async () => {
      const before = await keys('globex');
      const client = await login(world.globex);
      await rotateKey(world.installation, 'acme');
      expect(await keys('globex')).to.deep.equal(before);
      expect(await statuses(client)).to.deep.equal([200, 200]);
    });
  });

  it('a retired key verifies no token after the retirement time, while the session continues', async () => {
    const client = await login();
    await rotateKey(world.installation, 'acme');
    const age = (by: string) =>
      controlSql(world, 'update signing_keys set retired_at = now() - ?::interval where kid = ?', [
        by,
        kidOf(client),
      ]);
    await age(`${keyRetirementSeconds - 60} seconds`);

    const newer = await eventually(async () => {
      const later = await login();
      return kidOf(later) !== kidOf(client) && later;
    }, announcedMs);
    expect(await statuses(client)).to.deep.equal([200, 200]);

    await age(`${keyRetirementSeconds + 1} seconds`);
    await eventually(
      async () => (await statuses(client)).every(status => status === 401),
      announcedMs,
    );
    expect(await statuses(newer)).to.deep.equal([200, 200]);
    expect(await statuses(await refresh(client)), 'the session continues').to.deep.equal([
      200, 200,
    ]);
  });

  describe('disabling', () => {
    it('every process refuses tokens of a disabled key, a new key signs, sessions continue', async () => {
      const client = await login();
      const kid = kidOf(client);
      expect(await statuses(client)).to.deep.equal([200, 200]);

      const startedAt = performance.now();
      await disableKey(world.installation, 'acme', kid);
      await eventually(
        async () => (await statuses(client)).every(status => status === 401),
        announcedMs,
      );
      console.log(
        `      refused in both processes after ${(performance.now() - startedAt).toFixed(0)} ms`,
      );

      for (let i = 0; i < 10; i++) expect(await statuses(client)).to.deep.equal([401, 401]);
      // The guide tells clients to log in again: only `token_expired` lets them refresh.
      expect((await client.get(path)).body.code).to.equal('invalid_token');

      const now = await active();
      expect(now).to.have.length(1).and.not.include(kid);

      const renewed = await refresh(client);
      expect(kidOf(renewed)).to.equal(now[0]);
      expect(await statuses(renewed)).to.deep.equal([200, 200]);
    });

    it('disabling a retiring key leaves the active key unchanged', async () => {
      const client = await login();
      const { kid } = await rotateKey(world.installation, 'acme');

      await disableKey(world.installation, 'acme', kidOf(client));
      await eventually(
        async () => (await statuses(client)).every(status => status === 401),
        announcedMs,
      );
      expect(await active()).to.deep.equal([kid]);

      await disableKey(world.installation, 'acme', kidOf(client));
      expect(await active(), 'disabled again').to.deep.equal([kid]);
    });

    it('concurrent rotations and disablings leave exactly one active key', async () => {
      for (let round = 0; round < 3; round++) {
        const [kid = ''] = await active();
        await Promise.all([
          disableKey(world.installation, 'acme', kid),
          rotateKey(world.installation, 'acme'),
          disableKey(world.installation, 'acme', kid),
          rotateKey(world.installation, 'acme'),
        ]);

        expect(await active())
          .to.have.length(1)
          .and.not.include(kid);
        expect((await keys()).find(key => key.kid === kid)).to.include({ status: 'disabled' });
      }

      expect(await statuses(await login())).to.deep.equal([200, 200]);
    });

    it('a key cannot be disabled through another tenant', async () => {
      const [kid = ''] = await active('globex');
      const refused = await disableKey(world.installation, 'acme', kid).then(
        () => 'done',
        (error: Error) => error.message,
      );
      expect(refused).to.equal(
        `acme has no key ${kid}. List its keys: bin/backoffice key list acme`,
      );
      expect(await active('globex')).to.deep.equal([kid]);
    });
  });

  it('a key that is moved to another tenant cannot be opened there, and that tenant is not served', async () => {
    const other = await world.provision('initech');
    const client = await login(other);

    const { kid: moved } = await rotateKey(world.installation, 'acme');
    // Makes the key retiring: each tenant has only one active key.
    await rotateKey(world.installation, 'acme');
    await controlSql(world, 'update signing_keys set tenant_id = ? where kid = ?', [
      other.id,
      moved,
    ]);

    await eventually(
      async () => (await statuses(client)).every(status => status === 503),
      announcedMs,
    );
    expect(await statuses(await login()), 'acme').to.deep.equal([200, 200]);

    await controlSql(world, 'delete from signing_keys where kid = ?', [moved]);
    await eventually(
      async () => (await statuses(client)).every(status => status === 200),
      announcedMs,
    );
  });

  describe('change of the master key', () => {
    const masterKey = randomBytes(32).toString('base64');

    const bothTenants = [() => world.acme, () => world.globex];

    const seal = (...keys: [present: string, previous: string]): Promise<number> => {
      const [present, previous] = keys.map(key => Buffer.from(key, 'base64')) as [Buffer, Buffer];
      const secrets = new SecretBox(present, previous);
      return resealSecrets({ pool: world.installation.pool, secrets });
    };

    /** Lets the key of the world be the master key again. */
    afterEach(async () => {
      await seal(world.environment.MASTER_KEY ?? '', masterKey);
      const named = { 'X-Tenant': world.acme.guid };
      for (const url of [world.url, otherUrl]) {
        const client = world.anonymous.at(url);
        await eventually(
          async () =>
            (await client.post('/api/v1/auth/login', world.acme.admin, named)).status === 200,
        );
      }
    });

    it('secrets open with the previous master key until they are resealed, then only with the new one', async () => {
      await controlSql(world, `update tenants set features = '{legacyTokens}' where id = ?`, [
        world.acme.id,
      ]);
      const old = await addClient(world.installation, 'acme', world.acme.admin.email, 'Old');
      const Authorization = `Basic ${Buffer.from(`${old.id}:${old.secret}`).toString('base64')}`;
      const given = await eventually(async () => {
        const response = await world.anonymous.get('/api/Data/GenerateToken', { Authorization });
        return response.status === 200 && response;
      }, announcedMs);
      secrets.add(old.secret).add(given.body.token);

      const legacy = (url: string) => new Client(url).withToken(given.body.token).get(path);
      const clients = await Promise.all(bothTenants.map(tenant => login(tenant())));
      const [unused] = [await login()];

      const oldKey = world.environment.MASTER_KEY ?? '';
      const environment = { MASTER_KEY: masterKey, MASTER_KEY_PREVIOUS: oldKey };
      const between = await startServerBeside(world, environment);
      const renewed: Client[] = [];
      for (const [at, client] of clients.entries()) {
        const tenant = bothTenants[at]!();
        expect(
          (await client.at(between.url).get(path)).status,
          'an access token issued before',
        ).to.equal(200);
        renewed.push(await refresh(client, between.url, tenant)); // a refresh token issued before
        expect((await renewed[at]!.get(path)).status).to.equal(200);
        expect((await (await login(tenant, between.url)).get(path)).status).to.equal(200);
      }
      expect((await legacy(between.url)).status).to.equal(200);

      const resealed = await runCommand('scripts/control.ts', ['reseal', '--json', '--yes'], {
        ...world.environment,
        ...environment,
      });
      expect({ code: resealed.code, stderr: resealed.stderr }).to.deep.equal({
        code: 0,
        stderr: '',
      });

      const [row] = await controlSql<{ count: string }>(
        world,
        `select (select count(*) from tenants) + (select count(*) from tenant_databases) + (select count(*) from signing_keys) as count`,
      );
      expect(JSON.parse(resealed.stdout)).to.deep.equal({ secrets: Number(row?.count) });

      const { secrets: keys } = between;
      await eventually(() => keys.present === keys.masterKey);

      // issued under the new key from now on
      for (const [at, client] of renewed.entries()) {
        renewed[at] = await refresh(client, between.url, bothTenants[at]!());
      }
      await between.stop();

      const later = await startServerBeside(world, { MASTER_KEY: masterKey });
      try {
        for (const [at, client] of [...clients, ...renewed].entries()) {
          expect((await client.at(later.url).get(path)).status, 'an access token').to.equal(200);
          expect(
            (await (await login(bothTenants[at % 2]!(), later.url)).get(path)).status,
          ).to.equal(200);
        }
        for (const [at, client] of renewed.entries()) {
          await refresh(client, later.url, bothTenants[at]!());
        }
        expect((await legacy(later.url)).status).to.equal(200);
        const refused = await world.anonymous
          .at(later.url)
          .post('/api/v1/auth/refresh', unused?.tokens, { 'X-Tenant': world.acme.guid });
        expect(refused.status).to.equal(401);
        expect(refused.body.code).to.equal('invalid_refresh_token');
        expect(
          (await unused?.at(later.url).get(path))?.status,
          'the refused refresh ends no session',
        ).to.equal(200);
      } finally {
        await later.stop();
      }
    });

    it('with a wrong master key a tenant gets 503, and neither response nor log contains a secret', async () => {
      await seal(masterKey, world.environment.MASTER_KEY ?? '');
      const good = await startServerBeside(world, { MASTER_KEY: masterKey });
      const client = await login(world.acme, good.url);
      await good.stop();

      const wrong = randomBytes(32).toString('base64');
      const { url, stop } = await startServerBeside(world, { MASTER_KEY: wrong });

      try {
        const logged = world.logs.length;
        const named = { 'X-Tenant': world.acme.guid };
        const anonymous = world.anonymous.at(url);
        const responses = [
          await client.at(url).get(path),
          await anonymous.post('/api/v1/auth/login', world.acme.admin, named),
          await anonymous.post('/api/v1/auth/refresh', client.tokens, named),
          await anonymous.post(
            '/api/v1/auth/reset-password',
            { email: world.acme.admin.email },
            named,
          ),
        ];

        for (const { status, body } of responses) {
          expect(status).to.equal(503);
          expect(body.code).to.equal('unavailable');
          expect(Object.keys(body).sort()).to.deep.equal([
            'code',
            'retryAfter',
            'status',
            'title',
            'traceId',
            'type',
          ]);
        }

        const log = world.logs.slice(logged).join('');
        expect(log).to.include('tenant_secrets_unusable');
        for (const secret of [
          wrong,
          masterKey,
          world.environment.MASTER_KEY ?? '-',
          world.acme.database,
        ]) {
          expect(log.includes(secret)).to.equal(false);
        }

        const { code, stdout, stderr } = await runCommand(
          'scripts/control.ts',
          ['reseal', '--yes'],
          {
            ...world.environment,
            MASTER_KEY: wrong,
          },
        );
        expect({ code, stdout }).to.deep.equal({ code: 1, stdout: '' });
        expect(stderr)
          .to.match(/MASTER_KEY/)
          .and.not.match(/\bat .*\.ts/);
      } finally {
        await stop();
      }

      const again = await startServerBeside(world, { MASTER_KEY: masterKey });
      expect((await client.at(again.url).get(path)).status, 'nothing was changed').to.equal(200);
      await again.stop();
    });
  });

  // In a suite of its own, because mocha runs the tests of a suite before its nested suites.
  describe('log', () => {
    it('the log contains no token, API secret or password of these tests', async () => {
      await refresh(await login());
      expectNotLogged(world, [...secrets, world.acme.admin.password, world.globex.admin.password]);
    });
  });
});
