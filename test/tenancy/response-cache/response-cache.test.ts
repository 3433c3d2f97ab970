import { get } from 'node:http';
import { expect } from 'chai';
import { resources } from '../../../src/sales/resources/index.ts';
import type { Client } from '../../support/client.ts';
import { announcedMs, eventually } from '../../support/eventually.ts';
import { controlSql, sql, type TestTenant, type World } from '../../support/world.ts';
import {
  asOperator,
  type CacheWorld,
  type Clients,
  createCacheWorld,
  currencies,
  feedMs,
  noCache,
} from './cache-world.ts';

describe('response cache', () => {
  let cache: CacheWorld;
  let world: World;
  let acme: Clients;
  let globex: Clients;
  let path: string;

  before(async () => {
    cache = await createCacheWorld();
    ({ world, acme, globex, currencyPath: path } = cache);
  });
  after(() => world.close());

  const control = (text: string, values: unknown[] = []) => controlSql(world, text, values);
  const rename: CacheWorld['rename'] = (client, name) => cache.rename(client, name);
  const nameAt: CacheWorld['nameAt'] = (client, headers) => cache.nameAt(client, headers);

  describe('hits', () => {
    it('a response is served without the database after the first request', async () => {
      await cache.fromMemory(async client => {
        for (const each of [path, currencies]) {
          expect((await client.get(each)).status).to.equal(200);
        }
      });
    });

    it('a cached response equals the one from the database in every byte, and its tag gets a 304', async () => {
      for (const { path: list } of resources) {
        const first = await getRaw(acme[0], list);
        if (first.status === 404) continue;

        const id = (JSON.parse(first.text) as { Id?: number }[])[0]?.Id;
        for (const each of id === undefined ? [list] : [list, `${list}/${id}`]) {
          const responses = [];
          for (const headers of [{}, {}, noCache]) {
            responses.push(await getRaw(acme[0], each, headers));
          }

          expect(
            new Set(responses.map(({ status, text, tag }) => `${status} ${tag} ${text}`)).size,
          ).to.equal(1);
          expect(responses[0]).to.include({ status: 200 });
          const tag = responses[0]?.tag ?? '';
          expect(tag).to.match(/^"[\w-]+"$/);

          for (const headers of [{}, noCache]) {
            const unchanged = await getRaw(acme[0], each, { 'If-None-Match': tag, ...headers });
            expect(unchanged.status).to.equal(304);
            expect(unchanged.text).to.equal('');
            expect(unchanged.tag).to.equal(tag);
            expect(
              (await getRaw(acme[0], each, { 'If-None-Match': '"another"', ...headers })).status,
            ).to.equal(200);
          }
        }
      }
    });

    it('a cached response is never served to another tenant, though both tenants have the same path', async () => {
      await rename(acme[0], 'Euro of acme');
      await rename(globex[0], 'Euro of globex');
      await cache.fillCaches(acme);
      await cache.fillCaches(globex);

      for (const client of acme) expect(await nameAt(client)).to.equal('Euro of acme');
      for (const client of globex) {
        expect(await nameAt(client.withToken(client.tokens?.accessToken ?? ''))).to.equal(
          'Euro of globex',
        );
      }

      const mixed = await acme[0].get(path, { 'X-Tenant': world.globex.guid });
      expect(mixed.body.Name).to.equal('Euro of acme');
    });

    it('a cached response is not returned to a caller without a session or without the permission', async () => {
      const client = await world.login(world.acme);
      await cache.fillCaches(cache.clientsOf(client));
      await client.post('/api/v1/auth/logout', { refreshToken: client.tokens?.refreshToken });

      expect((await client.get(path)).status).to.equal(401);
      expect((await world.anonymous.get(path, { 'X-Tenant': world.acme.guid })).status).to.equal(
        401,
      );

      const statuses = '/api/v1/EntityStatus';
      for (let i = 0; i < 2; i++) expect((await acme[0].get(statuses)).status).to.equal(200);
      const stranger = await world.loginAs(world.acme, { permissions: [] });
      expect((await stranger.get(statuses)).status).to.equal(403);
    });
  });

  describe('invalidation', () => {
    it('the process of a change serves no older response from the moment it has responded to the change', async () => {
      for (let i = 0; i < 12; i++) {
        await cache.fillCaches(acme);
        expect((await rename(acme[0], `own ${i}`)).status).to.equal(200);
        expect(await nameAt(acme[0])).to.equal(`own ${i}`);
        const list = await acme[0].get(currencies);
        expect(list.body.map(({ Name }: { Name: string }) => Name)).to.include(`own ${i}`);
      }
    });

    it('many changes in two processes leave no old response, and the last change is cached again', async () => {
      for (let i = 0; i < 30; i++) {
        const client = acme[Math.floor(i / 5) % 2] as Client;
        expect((await rename(client, `burst ${i}`)).status).to.equal(200);
        expect(await nameAt(client)).to.equal(`burst ${i}`);
      }
      await cache.expectEverywhere('burst 29');
      await cache.fromMemory(async client => expect(await nameAt(client)).to.equal('burst 29'));
    });

    it('another process serves a change within the delay of the change feed', async () => {
      const delays: number[] = [];
      for (let i = 0; i < 15; i++) {
        await cache.fillCaches(acme);
        await rename(acme[0], `other ${i}`);
        const changedAt = performance.now();
        await eventually(async () => (await nameAt(acme[1])) === `other ${i}`, announcedMs);
        delays.push(performance.now() - changedAt);
      }

      if (process.env.MEASURE) {
        process.stdout.write(`feed delay, ms: ${delays.map(ms => ms.toFixed(1)).join(' ')}\n`);
      }

      // The shortest one, because a busy machine may delay any.
      expect(Math.min(...delays)).to.be.at.most(feedMs);
    });

    it('another process serves a new record, and no longer a deleted one, within the delay of the feed', async () => {
      for (let i = 0; i < 5; i++) {
        const { body } = await acme[0].post(currencies, { Code: 'XTS', Name: 'Test' });
        const created = `${currencies}/${body.Id}`;
        for (const client of acme) {
          await eventually(async () => (await client.get(created)).status === 200, announcedMs);
        }

        expect((await acme[1].delete(created)).status).to.equal(204);
        expect((await acme[1].get(created)).status).to.equal(404);

        await eventually(async () => (await acme[0].get(created)).status === 404, announcedMs);
        await sql(world.acme, 'delete from currencies where id = $1', [body.Id]);
      }
    });

    it('a change by psql is returned to requests with Cache-Control: no-cache, and not from the cache', async () => {
      await rename(acme[0], 'cached');
      await cache.expectEverywhere('cached');
      await cache.fromMemory(async client => expect(await nameAt(client)).to.equal('cached'));

      await sql(world.acme, `update currencies set name = 'by psql' where code = 'EUR'`);
      for (const client of acme) {
        expect(await nameAt(client, noCache)).to.equal('by psql');
        expect(await nameAt(client)).to.equal('cached');
      }

      await rename(acme[0], 'by the service');
      await cache.expectEverywhere('by the service');
    });
  });

  describe('change feed that is down', () => {
    let controlName: string;

    before(() => {
      controlName = decodeURIComponent(new URL(world.installation.controlUrl).pathname.slice(1));
    });
    afterEach(async () => {
      await allowConnections(true);
      await expectReadiness(200);
    });

    it('nothing is served from memory while the change feed is down, and all is current when it is back', async () => {
      await cache.expectEverywhere(await cache.renamed('up'));
      await cache.fillCaches(acme);

      await control('select 1'); // opens a connection that stays open
      await allowConnections(false);
      await endConnections('backoffice-change-feed');
      await expectReadiness(503);

      for (let i = 0; i < 3; i++) {
        await sql(world.acme, `update currencies set name = 'down ${i}' where code = 'EUR'`);
        for (const client of acme) expect(await nameAt(client)).to.equal(`down ${i}`);
      }

      await allowConnections(true);
      await expectReadiness(200);
      for (const client of acme) expect(await nameAt(client)).to.equal('down 2');
      await cache.expectEverywhere(await cache.renamed('up again'));
    });

    it('a change that cannot be announced is made, and announced when the control database is back', async () => {
      await cache.expectEverywhere(await cache.renamed('announced'));
      await cache.fillCaches(acme);
      await allowConnections(false);
      await endConnections('backoffice-control');

      await cache.renamed('not announced');

      expect(await nameAt(acme[0])).to.equal('not announced');
      await allowConnections(true);
      await cache.expectEverywhere('not announced');
    });

    function allowConnections(allowed: boolean): Promise<unknown> {
      return asOperator(`alter database "${controlName}" allow_connections ${allowed}`);
    }

    function endConnections(application: string): Promise<unknown> {
      return asOperator(
        `select pg_terminate_backend(pid, 2000) from pg_stat_activity
          where application_name like '${application}%' and datname = '${controlName}'`,
      );
    }

    async function expectReadiness(expected: number): Promise<void> {
      const urls = cache.managementPorts.map(port => `http://127.0.0.1:${port}/health/ready`);
      await eventually(async () => {
        const statuses = await Promise.all(urls.map(async url => (await fetch(url)).status));
        return statuses.every(status => status === expected);
      });
    }
  });

  describe('state of the tenant', () => {
    let tenant: TestTenant;
    let clients: Clients;

    beforeEach(async () => {
      tenant = await world.provision(`tenant-${Math.random().toString(36).slice(2, 10)}`);
      clients = cache.clientsOf(await world.login(tenant));
      for (const client of clients) {
        for (let i = 0; i < 2; i++) {
          expect((await client.get('/api/v1/EntityStatus')).status).to.equal(200);
        }
      }
    });

    for (const [description, change, expectedStatus, code] of [
      ['was suspended', `status = 'suspended'`, 403, 'tenant_inactive'],
      ['is at another schema version', `schema_version = '0000-before'`, 503, 'migration_pending'],
      ['has moved to another database', `database_name = 'no_such_database'`, 503, 'unavailable'],
    ] as const) {
      it(`cached responses of a tenant that ${description} are not served after a second`, async () => {
        await control(`update tenants set ${change} where id = ?`, [tenant.id]);

        await Promise.all(
          clients.map(client =>
            eventually(async () => {
              const { status, body } = await client.get('/api/v1/EntityStatus');
              return status === expectedStatus && body.code === code;
            }, announcedMs),
          ),
        );

        // The world drops the databases that it finds in the table.
        await control('update tenants set database_name = ? where id = ?', [
          tenant.database,
          tenant.id,
        ]);
      });
    }
  });
});

/**
 * Requests with these headers and no others: `fetch` adds `no-cache` to a conditional request.
 */
function getRaw(
  { url, tokens }: Client,
  path: string,
  headers: Record<string, string> = {},
): Promise<{ status: number | undefined; tag: string | undefined; text: string }> {
  return new Promise((resolve, reject) => {
    const options = { headers: { Authorization: `Bearer ${tokens?.accessToken}`, ...headers } };
    get(`${url}${path}`, options, async response => {
      let text = '';
      for await (const chunk of response.setEncoding('utf8')) text += chunk;
      resolve({ status: response.statusCode, tag: response.headers.etag, text });
    }).on('error', reject);
  });
}
