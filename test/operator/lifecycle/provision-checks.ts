import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import pg from 'pg';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { Client } from '../../support/client.ts';
import { runScript, type ScriptResult, startScript } from '../../support/command-line.ts';
import { eventually } from '../../support/eventually.ts';
import { runCommand } from '../../support/run-command.ts';
import { postgresUrl, server } from '../../support/test-server.ts';
import { sql, type TestTenant, type World } from '../../support/world.ts';

const path = '/api/v1/EntityStatus';

/** The result of `provision --json`. */
interface PrintedTenant {
  id: number;
  guid: string;
  slug: string;
  name: string;
  appId: string;
  database: string;
  server: string;
  status: string;
  schemaVersion: string;
  createdAt: string;
  created: boolean;
  admin?: { email: string; password: string };
  users?: { email: string; password: string }[];
}

/** The arguments that provision a tenant with this slug. */
export const argumentsOf = (slug: string): string[] => [
  slug,
  '--name',
  `${slug} Ltd`,
  '--admin-email',
  `admin@${slug}.test`,
];

/**
 * Moments of a provision: when it waits for this lock with this statement. `status` is that of
 * its tenant then.
 */
export const killMoments = [
  {
    name: 'before it writes its row',
    lock: 'lock table tenants in exclusive mode',
    waiting: /insert into "tenants"/i,
    status: 'none',
  },
  {
    name: 'before it creates its role',
    lock: 'lock table pg_authid in share mode',
    waiting: /^\s*create role/i,
    status: 'provisioning',
  },
  {
    name: 'before it creates its database',
    lock: 'lock table pg_database in share mode',
    waiting: /^create database/i,
    status: 'provisioning',
  },
  {
    name: 'before it adds its users',
    lock: 'lock table users in exclusive mode',
    waiting: /(insert into|delete from) "?users"?/i,
    status: 'provisioning',
  },
];

/** Returns a tenant for `sql`, from a printed document. */
export function at({ database }: { database: string }): TestTenant {
  const url = new URL(postgresUrl());
  url.pathname = `/${database}`;
  return { adminUrl: url.href } as TestTenant;
}

/**
 * Returns functions that provision tenants with the command line, and check them.
 * @param world returns the world; called when one of the functions runs
 */
export function provisionChecks(world: () => World) {
  const provisionArguments = (args: string[]) => ['provision', ...args, '--json'];
  const runProvision = (...args: string[]): Promise<ScriptResult> =>
    runCommand('scripts/tenant.ts', provisionArguments(args), world().environment);
  /** Runs in a process of its own. */
  const startProvision = (...args: string[]): Promise<ScriptResult> =>
    runScript('scripts/tenant.ts', provisionArguments(args), world().environment);

  /** Provisions a tenant and returns the printed document. */
  const provision = async (...args: string[]): Promise<PrintedTenant> =>
    documentOf(await runProvision(...args));
  const provisionAlone = async (...args: string[]): Promise<PrintedTenant> =>
    documentOf(await startProvision(...args));

  function documentOf({ code, stdout, stderr }: ScriptResult): PrintedTenant {
    expect({ code, stderr }).to.deep.equal({ code: 0, stderr: '' });
    return JSON.parse(stdout) as PrintedTenant;
  }

  /**
   * Expects that the administrator of the tenant logs in and reads the three statuses of every
   * new tenant.
   */
  async function expectServed({
    guid,
    admin,
  }: Pick<PrintedTenant, 'guid' | 'admin'>): Promise<void> {
    const login = await world().anonymous.post('/api/v1/auth/login', admin, { 'X-Tenant': guid });
    expect(login.status).to.equal(200);
    const { status, body } = await new Client(world().url, login.body).get(path);
    expect(status).to.equal(200);
    expect(body.map(({ Id, Title }: { Id: number; Title: string }) => [Id, Title])).to.deep.equal([
      [1, 'Prospect'],
      [2, 'Active'],
      [3, 'Inactive'],
    ]);
  }

  const tenantsOf = (slug: string): Promise<{ guid: string; status: string; database: string }[]> =>
    world()
      .control.em.fork()
      .execute('select guid, status, database_name as database from tenants where slug = ?', [
        slug,
      ]);

  /**
   * Returns the databases and roles on the server that are of this world and of no other tenant
   * than this one. Their names have the numbers that the control database of this world has
   * given, also for provisions that failed.
   */
  async function listServer(slug: string): Promise<{ databases: string[]; roles: string[] }> {
    const em = world().control.em.fork();
    const tenants = await em.execute<{ slug: string; name: string }[]>(
      `select slug, d.database_name as name from tenant_databases d join tenants t on t.id = tenant_id
        union all select slug, database_name from tenants`,
    );
    const [sequence] = await em.execute<{ last: string }[]>(
      'select last_value as last from tenants_id_seq',
    );
    const last = Number(sequence?.last); // of each world in a range of its own
    const others = new Set(tenants.filter(tenant => tenant.slug !== slug).map(({ name }) => name));
    const isListed = (name: string): boolean => {
      const number = Number(/_tenant_(\d+)_/.exec(name)?.[1]);
      return !others.has(name) && number > last - 1_000 && number <= last;
    };
    return withConnection(postgresUrl(), async client => {
      const { rows } = await client.query<{ databases: string[]; roles: string[] }>(
        `select array(select datname::text from pg_database where datname ~ $1) as databases,
                array(select rolname::text from pg_roles where rolname ~ $1) as roles`,
        [`^${server.prefix}_tenant_`],
      );
      const { databases = [], roles = [] } = rows[0] ?? {};
      return { databases: databases.filter(isListed), roles: roles.filter(isListed) };
    });
  }

  /**
   * Expects one active tenant with one database, one role, one user, one signing key and two
   * roles of users.
   */
  async function expectComplete(slug: string): Promise<void> {
    const tenants = await tenantsOf(slug);
    expect(tenants.map(({ status }) => status)).to.deep.equal(['active']);
    const databases = tenants.map(({ database }) => database);
    expect(await listServer(slug)).to.deep.equal({ databases, roles: databases });
    const [counts] = await world()
      .control.em.fork()
      .execute<Record<string, string>[]>(
        `select (select count(*) from users where tenant_id = t.id) as users,
              (select count(*) from signing_keys where tenant_id = t.id) as keys,
              (select count(*) from roles where tenant_id = t.id) as roles
         from tenants t where slug = ?`,
        [slug],
      );
    expect(counts).to.deep.equal({ users: '1', keys: '1', roles: '2' });
  }

  /** Expects that no login to the tenant is possible. */
  async function expectNotServed(guid: string): Promise<void> {
    const { status, body } = await world().anonymous.post(
      '/api/v1/auth/login',
      { email: 'a@b.test', password: 'some password' },
      { 'X-Tenant': guid },
    );
    expect([status, body.code]).to.deep.equal([403, 'tenant_required']);
  }

  /**
   * Starts a provision that waits for a lock, checks that the tenant is not served, and kills
   * the process there.
   * @returns The row of the tenant in the control database afterwards; status 'none' without a
   *   row.
   */
  async function stopAt(
    slug: string,
    lock: string,
    waiting: RegExp,
  ): Promise<{ guid: string; status: string; database: string }> {
    const controlName = new URL(world().environment.DATABASE_URL ?? '').pathname.slice(1);
    const holder = new pg.Client(
      lock.includes('pg_') ? postgresUrl() : world().environment.DATABASE_URL,
    );
    await holder.connect();
    await holder.query('begin');
    await holder.query(lock);
    const running = startScript(
      'scripts/tenant.ts',
      ['provision', ...argumentsOf(slug)],
      world().environment,
    );
    try {
      await withConnection(postgresUrl(), client =>
        eventually(async () => {
          const { rows } = await client.query(
            `select query, datname from pg_stat_activity where wait_event_type = 'Lock'`,
          );
          // Other test files may use the same server.
          return rows.some(
            ({ query, datname }) =>
              waiting.test(query) && (query.includes(slug) || datname === controlName),
          );
        }, 60_000),
      );
      const [tenant] = await tenantsOf(slug);
      if (tenant) await expectNotServed(tenant.guid);
      running.process.kill('SIGKILL');
      expect((await running.ended).signal).to.equal('SIGKILL');
    } finally {
      await holder.query('rollback');
      await holder.end();
      running.process.kill('SIGKILL');
    }
    // The server may still execute the last statement of the killed process; the next run waits
    // for it.
    const [row] = await tenantsOf(slug);
    return row ?? { guid: '', status: 'none', database: '' };
  }

  /**
   * Kills a provision at this moment, and expects that the next one completes it and that
   * nobody is served before.
   */
  async function expectCompleted({
    name,
    lock,
    waiting,
    status,
  }: (typeof killMoments)[number]): Promise<void> {
    const slug = `killed-${name.split(' ').at(-1)}`;
    expect((await stopAt(slug, lock, waiting)).status).to.equal(status);
    const document = await provision(...argumentsOf(slug));
    expect(document.created).to.equal(true);
    await expectServed(document);
    await expectComplete(slug);
  }

  /**
   * Kills provisions at moments that are spread evenly over their duration, two at a time.
   * Expects that the next run completes each of them, and that the tenant is not served before.
   * @param kills number of killed provisions, even
   */
  async function killAtMoments(kills: number): Promise<void> {
    const twoAtOnce = <Result>(
      work: (number: number) => Promise<Result>,
      first: number,
    ): Promise<Result[]> => Promise.all([work(first), work(first + 1)]);
    const startedAt = performance.now();
    await twoAtOnce(number => provisionAlone(...argumentsOf(`not-killed-${number}`)), 1);
    const duration = performance.now() - startedAt;
    const killAndRepeat = async (kill: number): Promise<void> => {
      const slug = `killed-${kill}-of-${kills}`;
      const running = startScript(
        'scripts/tenant.ts',
        ['provision', ...argumentsOf(slug), '--json'],
        world().environment,
      );
      // Node takes the first half of the duration to start.
      await sleep(duration * (0.5 + (0.5 * kill) / (kills + 1)));
      running.process.kill('SIGKILL');
      await running.ended;
      const [tenant] = await tenantsOf(slug);
      if (tenant?.status === 'provisioning') await expectNotServed(tenant.guid);
      const { stdout, code } = await startProvision(...argumentsOf(slug));
      if (tenant?.status === 'active') {
        // The process was killed after its last step.
        expect(code).to.equal(1);
        expect(await sql(at(tenant), 'select title from entity_statuses')).to.have.length(3);
      } else {
        expect(code).to.equal(0);
        await expectServed(JSON.parse(stdout));
      }
      await expectComplete(slug);
    };
    for (let kill = 1; kill <= kills; kill += 2) await twoAtOnce(killAndRepeat, kill);
  }

  return {
    runProvision,
    provision,
    provisionAlone,
    expectServed,
    expectNotServed,
    expectComplete,
    listServer,
    expectCompleted,
    tenantsOf,
    killAtMoments,
  };
}
