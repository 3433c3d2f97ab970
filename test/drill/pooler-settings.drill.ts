import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import pg from 'pg';
import type { Tenant } from '../../src/control/control-entities.ts';
import { owners } from '../../src/control/secret-box.ts';
import { databaseUrl } from '../../src/control/server-urls.ts';
import { withConnection } from '../../src/lib/postgres/connection.ts';
import { PrintedLines, readPage } from '../deploy/engines/printed-lines.ts';
import { makeCertificate } from '../support/certificate.ts';
import { Client } from '../support/client.ts';
import { runScript } from '../support/command-line.ts';
import { createDedicatedServer, type DedicatedServer } from '../support/dedicated-server.ts';
import { eventually } from '../support/eventually.ts';
import { type PgBouncer, pgBouncerVersion, startPgBouncer } from '../support/pgbouncer.ts';
import { createPlainServer, type PlainServer } from '../support/plain-server.ts';
import { createServiceProcesses } from '../support/service-processes.ts';

/** More tenants than the server has connections. */
const fleetSize = 49;
const connections = 40;
const budget = { CONNECTION_BUDGET: '20' };
const path = '/api/v1/EntityStatus';

/** Returns the lines for PgBouncer that docs/operate/capacity.md prints. */
async function printedLines(): Promise<string> {
  const page = await readPage('operate/capacity');
  return new PrintedLines(page, 'Connections', 'ini').block('server_idle_timeout');
}

describe('drill: the settings of PgBouncer in session mode that the handbook prints', function () {
  this.timeout(600_000);

  let pooler: PgBouncer | undefined;

  before(function () {
    const version = pgBouncerVersion();
    console.log(`      PgBouncer ${version ?? 'is not installed: this drill is skipped'}`);
    if (version === undefined) this.skip();
  });
  afterEach(async () => {
    await pooler?.close();
    pooler = undefined;
  });

  describe('with more tenants than the server has connections', () => {
    let server: DedicatedServer;
    const processes = createServiceProcesses();
    const clients: Client[] = [];
    const tenantUrls: string[] = [];

    before(async () => {
      server = await createDedicatedServer([`max_connections=${connections}`]);
      const direct = await processes.start({ ...server.environment, ...budget });

      for (let number = 1; number <= fleetSize; number++) {
        const { tenant, logins } = await server.provision(`fleet-${number}`);
        const [login] = logins;
        const { body } = await new Client(direct.url).post(
          '/api/v1/auth/login',
          { email: login?.email, password: login?.password },
          { 'X-Tenant': tenant.guid },
        );
        clients.push(new Client(direct.url, body));
        tenantUrls.push(urlOf(tenant));
      }
      await processes.killAll();
    });
    after(async () => {
      await processes.killAll();
      await server?.close();
    });

    function urlOf({ guid, databaseName, roleName: user, rolePassword }: Tenant): string {
      const { secrets } = server.installation;
      const password = secrets.open(rolePassword, owners.rolePassword(guid)).toString();
      return databaseUrl(server.url, databaseName, { user, password });
    }

    /** Reads once as each tenant through a pooler, and lets doctor look at the server then. */
    async function readOnce(settings: string) {
      // The sessions of an `auth_query` in the databases of tenants would take connections, too.
      // A version without `auth_dbname` gets the passwords of tenants in its file.
      const isOld = (pgBouncerVersion() ?? 0) < 1.19;
      pooler = await startPgBouncer({
        mode: 'session',
        settings: isOld ? settings : `auth_dbname = postgres\n${settings}`,
        urls: isOld ? [server.url, ...tenantUrls] : [server.url],
      });
      const environment = {
        ...server.environment,
        ...budget,
        DATABASE_URL: pooler.through(server.environment.DATABASE_URL ?? ''),
      };
      const service = await processes.start(environment);

      const statuses: number[] = [];
      for (const client of clients) {
        statuses.push((await client.at(service.url).get(path)).status);
      }
      const { stdout, stderr } = await runScript(
        'scripts/tenant.ts',
        ['doctor', '--json'],
        environment,
      );
      expect(stdout, stderr).to.not.equal('');
      await processes.killAll();

      const served = statuses.filter(status => status === 200).length;
      const findings: { check: string; remedy: string }[] = JSON.parse(stdout).findings;
      console.log(
        `      ${served} of ${fleetSize} tenants served; doctor:`,
        Object.fromEntries(
          Object.entries(Object.groupBy(findings, ({ check }) => check)).map(([check, list]) => [
            check,
            list?.length,
          ]),
        ),
      );
      return {
        served,
        findings: findings.filter(({ check }) => check === 'pooler_keeps_sessions'),
      };
    }

    it('with the printed lines, each tenant is served, and doctor has nothing to say about the pooler', async () => {
      const { served, findings } = await readOnce(await printedLines());

      expect(served).to.equal(fleetSize);
      expect(findings).to.deep.equal([]);
    });

    it('without them, some tenants get 503, and doctor names the settings', async () => {
      const { served, findings } = await readOnce('');

      expect(served).to.be.below(fleetSize);
      expect(findings).to.have.length(1);
      expect(findings[0]?.remedy).to.include(
        'set server_idle_timeout = 1 and server_login_retry = 1 in its file',
      );
    });
  });

  describe('after a refused login, and before a change of the server', () => {
    let first: PlainServer;
    let second: PlainServer;

    before(async () => {
      [first, second] = [await createPlainServer(''), await createPlainServer('')];
      for (const server of [first, second]) {
        await server.sql(`create role reader login password 'of-both'`);
      }
    });
    after(async () => {
      await first?.close();
      await second?.close();
    });

    const readerOf = (server: PlainServer): string =>
      Object.assign(new URL(server.superuserUrl('postgres')), {
        username: 'reader',
        password: 'of-both',
      }).href;

    async function start(settings: string): Promise<PgBouncer> {
      const urls: [string, string] = [first.superuserUrl('postgres'), readerOf(first)];
      pooler = await startPgBouncer({ mode: 'session', settings, urls });

      return pooler;
    }

    const portOf = (url: string): Promise<number> =>
      withConnection(url, async client => {
        const { rows } = await client.query<{ port: number }>('select inet_server_port() as port');
        return rows[0]?.port ?? 0;
      });

    /** Each way in which a login fails, without the settings that let the next one succeed. */
    const failures: Record<string, (url: string) => Promise<void>> = {
      'that the server has refused': async url => {
        await first.sql('alter role reader nologin');
        expect(await portOf(url).catch(() => undefined)).to.equal(undefined);
        await first.sql('alter role reader login');
      },
      'between KILL and RESUME': async url => {
        await withConsole(url, async client => {
          await client.query('KILL postgres');
          portOf(url).catch(() => undefined);
          await eventually(async () => {
            const { rows } = await client.query('SHOW CLIENTS');
            return rows.some(({ database }) => database === 'postgres');
          });
          await client.query('RESUME postgres');
        });
      },
    };

    /** Runs a function with the console of PgBouncer, which knows simple queries only. */
    async function withConsole(url: string, run: (client: pg.Client) => Promise<void>) {
      const client = new pg.Client(Object.assign(new URL(url), { pathname: '/pgbouncer' }).href);
      await client.connect();
      await run(client).finally(() => client.end());
    }

    for (const [settings, title, [least, most]] of [
      ['', 'for up to 15 s', [5, 40]],
      ['server_login_retry = 1', 'for a second or two with server_login_retry = 1', [0, 5]],
    ] as const) {
      for (const [failure, fail] of Object.entries(failures)) {
        it(`after a login ${failure}, nobody logs in ${title}`, async () => {
          const { through } = await start(`admin_users = reader\n${settings}`);
          const url = through(readerOf(first));
          await fail(url);

          const begunAt = performance.now();
          await eventually(() => portOf(url).catch(() => false), 60_000);
          const seconds = (performance.now() - begunAt) / 1_000;

          console.log(`      ${seconds.toFixed(1)} s`);
          expect(seconds).to.be.within(least, most);
        });
      }
    }

    for (const [settings, staysOpen] of [
      ['', true],
      ['server_fast_close = 1', false],
    ] as const) {
      it(`when the server moves behind it, an open session ${staysOpen ? 'stays on the former one' : 'ends with server_fast_close = 1, and a new one is on the new server'}`, async () => {
        const { through, leadTo } = await start(settings);
        const url = through(readerOf(first));
        const session = new pg.Client(url);
        session.on('error', () => {});
        await session.connect();
        const read = async () =>
          (await session.query('select inet_server_port() as port')).rows[0].port;
        const before = await read();

        await leadTo(second.superuserUrl('postgres'));
        const after = await eventually(async () => {
          const current = await portOf(url).catch(() => before);
          return current !== before && current;
        }, 30_000);

        expect(after).to.not.equal(before);
        const readsFor = async (ms: number): Promise<boolean> => {
          for (const end = performance.now() + ms; performance.now() < end; await sleep(200)) {
            if ((await read().catch(() => undefined)) === undefined) return false;
          }
          return true;
        };
        expect(await readsFor(5_000)).to.equal(staysOpen);
        await session.end().catch(() => {});
      });
    }

    it('a URL with sslnegotiation=direct works from 1.25 on; an earlier one seems not to respond', async () => {
      const folder = await mkdtemp(join(tmpdir(), 'backoffice-drill-'));
      const [certificate, key] = [join(folder, 'tls.crt'), join(folder, 'tls.key')] as const;
      await makeCertificate('127.0.0.1', [certificate, key]);
      for (const [name, mode] of [
        [folder, 0o755],
        [certificate, 0o644],
        [key, 0o644],
      ] as const) {
        await chmod(name, mode);
      }
      const { through } = await start(
        `client_tls_sslmode = require\nclient_tls_cert_file = ${certificate}\nclient_tls_key_file = ${key}`,
      );
      const url = `${through(readerOf(first))}?sslmode=verify-full&sslrootcert=${certificate}`;

      const usual = await portOf(url).catch(String);
      const direct = await portOf(`${url}&sslnegotiation=direct`).catch(
        error => `${error.code} ${error.message}`,
      );

      console.log(`      direct: ${direct}`);
      await rm(folder, { recursive: true });
      expect(usual).to.be.a('number');
      expect(typeof direct).to.equal((pgBouncerVersion() ?? 0) >= 1.25 ? 'number' : 'string');
    });
  });
});
