import { randomBytes } from 'node:crypto';
import { expect } from 'chai';
import { readConfig } from '../../src/config.ts';
import { keyRetirementSeconds } from '../../src/control/token-lifetime.ts';
import { openInstallation } from '../../src/installation.ts';
import { addClient } from '../../src/operator/tenants/clients.ts';
import { disableKey, listKeys, rotateKey } from '../../src/operator/tenants/keys.ts';
import { startServer } from '../../src/server.ts';
import { Client } from '../support/client.ts';
import { runScript } from '../support/command-line.ts';
import { eventually } from '../support/eventually.ts';
import { createWorld, type TestTenant, type World } from '../support/world.ts';
import { controlSql } from './sample-users.ts';
import { expectNotLogged } from './secrets.ts';

const path = '/api/v1/EntityStatus';

describe('Signing keys', () => {
  let world: World;
  /** The other process of the service. */
  let elsewhere: string;
  const secrets = new Set<string>();

  before(async () => {
    world = await createWorld();
    elsewhere = (await world.startAnotherServer()).url;
  });
  after(() => world.close());

  const keys = (slug = 'acme') => listKeys(world.installation, slug);
  const active = async (slug = 'acme'): Promise<string[]> =>
    (await keys(slug)).filter(({ status }) => status === 'active').map(({ kid }) => kid);
  const kidOf = ({ tokens }: { tokens: { accessToken: string } | undefined }): string => {
    const [header = ''] = (tokens?.accessToken ?? '').split('.');
    return JSON.parse(Buffer.from(header, 'base64url').toString()).kid;
  };
  const login = async (tenant: TestTenant = world.acme, url = world.url): Promise<Client> => {
    const answer = await world.anonymous.at(url).post('/api/v1/auth/login', tenant.admin, { 'X-Tenant': tenant.guid });
    expect(answer.status).to.equal(200);
    const { accessToken, refreshToken } = answer.body;
    secrets.add(accessToken).add(refreshToken);
    return new Client(url, { accessToken, refreshToken });
  };
  const refresh = async (client: Client, url = client.url, tenant = world.acme): Promise<Client> => {
    const { refreshToken } = client.tokens ?? {};
    const answer = await world.anonymous
      .at(url)
      .post('/api/v1/auth/refresh', { refreshToken }, { 'X-Tenant': tenant.guid });
    expect([answer.status, answer.body.code]).to.deep.equal([200, undefined]);
    secrets.add(answer.body.accessToken).add(answer.body.refreshToken);
    return new Client(url, answer.body);
  };
  const statuses = async (client: Client): Promise<number[]> =>
    Promise.all([world.url, elsewhere].map(async url => (await client.at(url).get(path)).status));

  describe('are rotated', () => {
    it('twenty times under load, in two processes, and no good session is refused once', async () => {
      const urls = [world.url, elsewhere];
      const clients = await Promise.all(urls.flatMap(url => [1, 2, 3, 4].map(() => login(world.acme, url))));
      const answered: Record<number, number> = {};
      let calls = 0;
      let stop = false;
      const load = clients.map(async (first, worker) => {
        let client = first;
        for (let i = 0; !stop; i++) {
          const { status } = await client.at(urls[(i + worker) % 2] ?? '').get(path);
          answered[status] = (answered[status] ?? 0) + 1;
          calls++;
          // A token of the moment, used at once at the other process.
          if (i % 10 === 9) client = await refresh(client, urls[i % 2]);
        }
      });
      const startedAt = performance.now();
      const seen = new Set<string>();
      try {
        for (let rotation = 0; rotation < 20; rotation++) {
          const until = calls + 25;
          seen.add(await rotateKey(world.installation, 'acme'));
          expect(await active()).to.have.length(1);
          await eventually(() => calls >= until);
        }
      } finally {
        stop = true;
      }
      await Promise.all(load);
      const seconds = (performance.now() - startedAt) / 1_000;
      console.log(`      ${calls} calls in ${seconds.toFixed(1)} s, refused: ${calls - (answered[200] ?? 0)}`);
      expect(seen.size).to.equal(20);
      expect(Object.keys(answered), JSON.stringify(answered)).to.deep.equal(['200']);
      for (const client of clients) expect(await statuses(client), 'of the first key').to.deep.equal([200, 200]);
    });

    it('and then the new one signs, everywhere within 1 s, while the one before goes on verifying', async () => {
      const before = await login();
      const kid = await rotateKey(world.installation, 'acme');
      expect(kid).to.not.equal(kidOf(before));
      for (const url of [world.url, elsewhere])
        await eventually(async () => kidOf(await login(world.acme, url)) === kid, 1_000);
      expect(await statuses(before)).to.deep.equal([200, 200]);
      const [former, present] = (await keys()).slice(-2);
      expect(former).to.include({ kid: kidOf(before), status: 'retiring' });
      expect(Date.now() - Date.parse(former?.retiredAt ?? '')).to.be.below(60_000);
      expect(present).to.include({ kid, status: 'active', retiredAt: null });
    });

    it('ten times at once, and exactly one is active, of as many more', async () => {
      const before = (await keys()).length;
      const made = await Promise.all(Array.from({ length: 10 }, () => rotateKey(world.installation, 'acme')));
      expect(new Set(made).size).to.equal(10);
      const now = await active();
      expect(now).to.have.length(1);
      expect(made).to.include(now[0]);
      expect(await keys()).to.have.length(before + 10);
    });

    it('for one tenant, and no other notices', async () => {
      const before = await keys('globex');
      const client = await login(world.globex);
      await rotateKey(world.installation, 'acme');
      expect(await keys('globex')).to.deep.equal(before);
      expect(await statuses(client)).to.deep.equal([200, 200]);
    });
  });

  it('that retired an hour ago verify nothing any more', async () => {
    const client = await login();
    await rotateKey(world.installation, 'acme');
    const age = (by: string) =>
      controlSql(world, 'update signing_keys set retired_at = now() - ?::interval where kid = ?', [by, kidOf(client)]);
    await age(`${keyRetirementSeconds - 60} seconds`);
    const younger = await login();
    await eventually(async () => kidOf(await login()) !== kidOf(client), 1_000);
    expect(await statuses(client)).to.deep.equal([200, 200]);
    await age(`${keyRetirementSeconds + 1} seconds`);
    await eventually(async () => (await statuses(client)).every(status => status === 401), 1_000);
    expect(await statuses(younger)).to.deep.equal([200, 200]);
    expect(await statuses(await refresh(client)), 'the session itself goes on').to.deep.equal([200, 200]);
  });

  describe('are disabled', () => {
    it('and refuse at once, everywhere within 1 s, while a new one signs and sessions go on', async () => {
      const client = await login();
      const kid = kidOf(client);
      expect(await statuses(client)).to.deep.equal([200, 200]);
      const startedAt = performance.now();
      await disableKey(world.installation, 'acme', kid);
      await eventually(async () => (await statuses(client)).every(status => status === 401), 1_000);
      console.log(`      refused in both processes after ${(performance.now() - startedAt).toFixed(0)} ms`);
      for (let i = 0; i < 10; i++) expect(await statuses(client)).to.deep.equal([401, 401]);
      const now = await active();
      expect(now).to.have.length(1).and.not.include(kid);
      const renewed = await refresh(client);
      expect(kidOf(renewed)).to.equal(now[0]);
      expect(await statuses(renewed)).to.deep.equal([200, 200]);
    });

    it('when they are retiring, without a change of the active one', async () => {
      const client = await login();
      const kid = await rotateKey(world.installation, 'acme');
      await disableKey(world.installation, 'acme', kidOf(client));
      await eventually(async () => (await statuses(client)).every(status => status === 401), 1_000);
      expect(await active()).to.deep.equal([kid]);
      await disableKey(world.installation, 'acme', kidOf(client));
      expect(await active(), 'disabled again').to.deep.equal([kid]);
    });

    it('while they are rotated, and exactly one is active', async () => {
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

    it('not by way of another tenant', async () => {
      const [kid = ''] = await active('globex');
      const refused = await disableKey(world.installation, 'acme', kid).then(
        () => 'done',
        (error: Error) => error.message,
      );
      expect(refused).to.equal(`acme has no key ${kid}. List its keys: npm run -s tenant -- key list acme`);
      expect(await active('globex')).to.deep.equal([kid]);
    });
  });

  it('do not open at another tenant: one that is moved there is not used, and its tenant is not served', async () => {
    const other = await world.provision('initech');
    const client = await login(other);
    const moved = await rotateKey(world.installation, 'acme');
    await rotateKey(world.installation, 'acme'); // it is retiring: not the one active key of either
    await controlSql(world, 'update signing_keys set tenant_id = ? where kid = ?', [other.id, moved]);
    await eventually(async () => (await statuses(client)).every(status => status === 503), 1_000);
    expect(await statuses(await login()), 'acme').to.deep.equal([200, 200]);
    await controlSql(world, 'delete from signing_keys where kid = ?', [moved]);
    await eventually(async () => (await statuses(client)).every(status => status === 200), 1_000);
  });

  describe('and the other secrets, when the master key is changed,', () => {
    const masterKey = randomBytes(32).toString('base64');

    /** A process that was started with these settings, as `npm start` would. */
    async function startWith(environment: Record<string, string>): Promise<{ url: string; stop(): Promise<void> }> {
      const config = readConfig({ ...world.environment, ...environment });
      const installation = await openInstallation(config);
      const service = await startServer({ config, installation, log: world.log, passwords: world.passwords });
      return {
        url: `http://127.0.0.1:${service.port}`,
        stop: async () => {
          await service.stop();
          await installation.close();
        },
      };
    }
    const all = [() => world.acme, () => world.globex];

    it('open under the previous one until they are sealed again, then under the new one alone', async () => {
      await controlSql(world, `update tenants set features = '{legacyTokens}' where id = ?`, [world.acme.id]);
      const old = await addClient(world.installation, 'acme', world.acme.admin.email, 'Old');
      const Authorization = `Basic ${Buffer.from(`${old.id}:${old.secret}`).toString('base64')}`;
      const given = await eventually(async () => {
        const answer = await world.anonymous.get('/api/Data/GenerateToken', { Authorization });
        return answer.status === 200 && answer;
      }, 1_000);
      secrets.add(old.secret).add(given.body.token);
      const legacy = (url: string) => new Client(url).withToken(given.body.token).get(path);
      const clients = await Promise.all(all.map(tenant => login(tenant())));
      const [unused] = [await login()];

      const environment = { MASTER_KEY: masterKey, MASTER_KEY_PREVIOUS: world.environment.MASTER_KEY ?? '' };
      const between = await startWith(environment);
      const renewed: Client[] = [];
      for (const [at, client] of clients.entries()) {
        const tenant = all[at]!();
        expect((await client.at(between.url).get(path)).status, 'an access token of before').to.equal(200);
        renewed.push(await refresh(client, between.url, tenant)); // a refresh token of before
        expect((await renewed[at]!.get(path)).status).to.equal(200);
        expect((await (await login(tenant, between.url)).get(path)).status).to.equal(200);
      }
      expect((await legacy(between.url)).status).to.equal(200);

      const resealed = await runScript('scripts/control.ts', ['reseal', '--json'], {
        ...world.environment,
        ...environment,
      });
      expect({ code: resealed.code, stderr: resealed.stderr }).to.deep.equal({ code: 0, stderr: '' });
      const [row] = await controlSql<{ count: string }>(
        world,
        `select (select count(*) from tenants) + (select count(*) from signing_keys) as count`,
      );
      expect(JSON.parse(resealed.stdout)).to.deep.equal({ secrets: Number(row?.count) });
      for (const client of renewed)
        expect((await client.get(path)).status, 'in the process that runs on').to.equal(200);
      await between.stop();

      const later = await startWith({ MASTER_KEY: masterKey });
      try {
        for (const [at, client] of [...clients, ...renewed].entries()) {
          expect((await client.at(later.url).get(path)).status, 'an access token').to.equal(200);
          expect((await (await login(all[at % 2]!(), later.url)).get(path)).status).to.equal(200);
        }
        for (const [at, client] of renewed.entries()) await refresh(client, later.url, all[at]!());
        expect((await legacy(later.url)).status).to.equal(200);
        const refused = await world.anonymous
          .at(later.url)
          .post('/api/v1/auth/refresh', unused?.tokens, { 'X-Tenant': world.acme.guid });
        expect([refused.status, refused.body.code]).to.deep.equal([401, 'invalid_refresh_token']);
        expect((await unused?.at(later.url).get(path))?.status, 'which ends nothing').to.equal(200);
      } finally {
        await later.stop();
      }
    });

    it('do not open under any other: the tenant is refused with 503, and nothing is told but that', async () => {
      const good = await startWith({ MASTER_KEY: masterKey });
      const client = await login(world.acme, good.url);
      await good.stop();
      const wrong = randomBytes(32).toString('base64');
      const { url, stop } = await startWith({ MASTER_KEY: wrong });
      try {
        const logged = world.logs.length;
        const named = { 'X-Tenant': world.acme.guid };
        const nobody = world.anonymous.at(url);
        const answers = [
          await client.at(url).get(path),
          await nobody.post('/api/v1/auth/login', world.acme.admin, named),
          await nobody.post('/api/v1/auth/refresh', client.tokens, named),
          await nobody.post('/api/v1/auth/reset-password', { email: world.acme.admin.email }, named),
        ];
        for (const { status, body } of answers) {
          expect([status, body.code]).to.deep.equal([503, 'unavailable']);
          expect(Object.keys(body).sort()).to.deep.equal(['code', 'status', 'title', 'traceId', 'type']);
        }
        const told = world.logs.slice(logged).join('');
        expect(told).to.include('tenant_secrets_unusable');
        for (const secret of [wrong, masterKey, world.environment.MASTER_KEY ?? '-', world.acme.database])
          expect(told.includes(secret)).to.equal(false);
        const { code, stdout, stderr } = await runScript('scripts/control.ts', ['reseal'], {
          ...world.environment,
          MASTER_KEY: wrong,
        });
        expect({ code, stdout }).to.deep.equal({ code: 1, stdout: '' });
        expect(stderr)
          .to.match(/MASTER_KEY/)
          .and.not.match(/\bat .*\.ts/);
      } finally {
        await stop();
      }
      const again = await startWith({ MASTER_KEY: masterKey });
      expect((await client.at(again.url).get(path)).status, 'nothing was changed').to.equal(200);
      await again.stop();
    });
  });

  describe('are told in the log', () => {
    it('without any of them, and without the tokens that they signed', async () => {
      expect(secrets.size).to.be.above(50);
      expectNotLogged(world, [...secrets, world.acme.admin.password, world.globex.admin.password]);
    });
  });
});
