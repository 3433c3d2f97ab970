import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import pg from 'pg';
import { createPasswords } from '../../../src/auth/passwords.ts';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { diagnose } from '../../../src/operator/doctor/doctor.ts';
import { provision } from '../../../src/operator/provisioning/provision.ts';
import { type FillResult, fillPool, listPool } from '../../../src/operator/provisioning/warm-pool.ts';
import { purgeTenant } from '../../../src/operator/tenants/tenant-states.ts';
import { lockKey, lockSpaces } from '../../../src/postgres/advisory-locks.ts';
import { runScript, type ScriptResult, startScript } from '../../support/command-line.ts';
import { createDedicatedServer, type DedicatedServer, manifestOf } from '../../support/dedicated-server.ts';
import { eventually } from '../../support/eventually.ts';
import { runCommand } from '../../support/run-command.ts';

describe('warm pool', () => {
  let server: DedicatedServer;
  const passwords = createPasswords();

  before(async () => {
    server = await createDedicatedServer();
  });
  after(() => server.close());

  const runTenant = (...args: string[]): Promise<ScriptResult> =>
    runCommand('scripts/tenant.ts', args, server.environment);
  const fill = async (size: number): Promise<FillResult | undefined> => (await fillPool(server.installation, size))[0];
  const poolLines = async () =>
    (await listPool(server.installation)).map(({ database, state }) => `${database} ${state}`);
  const findings = async (fix = false) =>
    (await diagnose(server.installation, { fix })).findings.map(({ check, tenant: slug }) => [check, slug]);

  /** Returns the databases and roles of the service on the server, without templates and the control database. */
  async function listServer(): Promise<{ databases: string[]; roles: string[] }> {
    const names = async (text: string) => (await server.sql<{ name: string }>(text)).map(({ name }) => name);
    return {
      databases: await names(
        `select datname as name from pg_database
          where datname ~ '^office_' and datname !~ '^office_template_' order by 1`,
      ),
      roles: await names(
        `select rolname as name from pg_roles where rolname ~ '^office_' and rolname <> 'office_tenant' order by 1`,
      ),
    };
  }

  /** Expects one database and one role for each tenant and each warm database, and no others. */
  async function expectNoOrphan(): Promise<void> {
    const known = await server.control<{ name: string }>(
      `select database_name as name from tenants union all select 'office_warm_' || id from warm_databases order by 1`,
    );
    const names = known.map(({ name }) => name).sort();
    const { databases, roles } = await listServer();
    expect(databases.sort()).to.deep.equal(names);
    expect(roles.sort()).to.deep.equal(names);
    expect(await findings()).to.deep.equal([]);
  }

  it('pool fill fills the pool, pool list prints it, and another fill of the same size changes nothing', async () => {
    const { code, stdout, stderr } = await runTenant('pool', 'fill', '--size', '2', '--json');
    expect({ code, stderr }).to.deep.equal({ code: 0, stderr: '' });
    expect(JSON.parse(stdout)).to.deep.equal([{ server: 'default', ready: 2, made: 2, dropped: 0, error: null }]);
    expect(await fill(2)).to.include({ ready: 2, made: 0, dropped: 0 });
    const list = JSON.parse((await runTenant('pool', 'list', '--json')).stdout);
    expect(list).to.have.length(2);
    expect(list[0]).to.include({ server: 'default', state: 'ready' });
    expect((await runTenant('pool', 'fill', '--size', '0')).code).to.equal(2);
    await expectNoOrphan();
  });

  it('a warm database accepts no connection, and its role cannot log in', async () => {
    const [{ database = '' } = {}] = await listPool(server.installation);
    const url = new URL(server.url);
    url.pathname = `/${database}`;
    const client = new pg.Client({ connectionString: url.href });
    expect(
      await client.connect().then(
        () => 'open',
        error => error.code,
      ),
    ).to.equal('55000');
    const [role] = await server.sql<object>(
      `select rolcanlogin, rolpassword from pg_authid where rolname = '${database}'`,
    );
    expect(role).to.deep.equal({ rolcanlogin: false, rolpassword: null });
  });

  it('a new tenant gets a warm database, renamed to its slug, with its own guid and roles only', async () => {
    const [first = ''] = await poolLines();
    const { tenant: acme } = await server.provision('acme');
    expect(first).to.equal(`office_warm_${acme.id} ready`);
    expect([acme.databaseName, acme.roleName]).to.deep.equal([`office_acme_${acme.id}`, `office_acme_${acme.id}`]);
    expect(await poolLines()).to.have.length(1);
    expect(await server.sql('select guid from tenant_identity', acme.databaseName)).to.deep.equal([
      { guid: acme.guid },
    ]);
    expect(await server.sql('select title from entity_statuses', acme.databaseName)).to.have.length(3);
    await expectNoOrphan();
  });

  it('with an empty pool, a tenant is provisioned without it', async () => {
    await server.provision('globex');
    expect(await poolLines()).to.deep.equal([]);
    const { tenant: initech } = await server.provision('initech');
    expect(initech.databaseName).to.equal(`office_initech_${initech.id}`);
    await expectNoOrphan();
  });

  it('a warm database of other migrations is never used for a tenant, and the next fill drops it', async () => {
    await fill(1);
    await server.control(`update warm_databases set digest = 'another'`);
    expect(await poolLines()).to.match(/outdated/);
    await server.provision('hooli');
    expect(await poolLines()).to.match(/outdated/);
    expect(await fill(1)).to.include({ ready: 1, made: 1, dropped: 1 });
    await expectNoOrphan();
  });

  it('warm databases that were dropped by hand are skipped, and tenants are still provisioned', async () => {
    await fill(2);
    const [first, second] = await listPool(server.installation);
    await server.sql(`drop database "${first?.database}"`);
    await server.sql(`update pg_database set datconnlimit = -2 where datname = '${second?.database}'`);
    expect(await findings()).to.deep.equal([
      ['missing_database', null],
      ['missing_database', null],
    ]);
    await server.provision('umbrella');
    await server.provision('vandelay');
    expect(await findings(true)).to.deep.equal([
      ['warm_leftover', null],
      ['warm_leftover', null],
    ]);
    await expectNoOrphan();
  });

  it('a warm database that a purged tenant had claimed is never given to another tenant', async () => {
    await fill(1);
    await stopAt('soylent', 'lock table pg_database in share mode', /alter database/);
    await purgeTenant(server.installation, 'soylent');
    expect(await fill(1)).to.include({ ready: 1, made: 1 });
    await expectNoOrphan();
  });

  it('pool fill and doctor --fix drop the templates of other builds, except a locked one', async () => {
    const templates = async () =>
      (
        await server.sql<{ name: string }>(
          `select datname as name from pg_database where datname ~ '^office_template_'`,
        )
      )
        .map(({ name }) => name)
        .sort();
    const [own = ''] = await templates();
    const [read, old] = ['office_template_000000000000_read', 'office_template_ffffffffffff'];
    for (const name of [read, old]) await server.sql(`create database ${name}`);
    const holder = new pg.Client(server.environment.DATABASE_URL);
    await holder.connect();
    try {
      await holder.query('select pg_advisory_lock($1, $2)', [lockSpaces.template, lockKey(old)]);
      await fill(1);
      expect(await templates()).to.deep.equal([own, old].sort());
    } finally {
      await holder.end();
    }
    await server.sql(`alter database ${old} allow_connections false`);
    expect(await findings()).to.deep.equal([['old_template', null]]);
    expect(await findings(true)).to.deep.equal([['old_template', null]]);
    expect(await templates()).to.deep.equal([own]);
    await expectNoOrphan();
  });

  it('a tenant whose names belong to another installation is refused, and its purge drops nothing', async () => {
    const { tenant: existing } = await server.provision('shared');
    const secret = () => server.sql(`select rolpassword from pg_authid where rolname = '${existing.roleName}'`);
    const before = await secret();
    await server.sql('create database other');
    const environment = { ...server.environment, DATABASE_URL: databaseUrl(server.url, 'other') };
    const other = async (...args: string[]) => runCommand('scripts/tenant.ts', args, environment);
    expect((await runCommand('scripts/control.ts', ['migrate'], environment)).code).to.equal(0);
    await server.sql(
      `update servers set prefix = 'office'; alter table tenants alter id restart with ${existing.id}`,
      'other',
    );
    const { code, stderr } = await other('provision', 'shared', '--name', 'S', '--admin-email', 'a@shared.test');
    expect([code, stderr]).to.satisfy(([, text]: [number, string]) => code === 1 && /same prefix\?/.test(text));
    expect(await secret()).to.deep.equal(before);
    expect((await other('purge', 'shared', '--yes')).code).to.equal(0);
    expect(await secret()).to.deep.equal(before);
    expect(await server.sql('select guid from tenant_identity', existing.databaseName)).to.deep.equal([
      { guid: existing.guid },
    ]);
    await expectNoOrphan();
  });

  it('the pool and doctor need no superuser, only the rights createdb and createrole', async () => {
    await server.sql(`create role operator login createdb createrole password 'secret'`);
    await server.sql('create database operator owner operator');
    const url = databaseUrl(server.url, 'operator', { user: 'operator', password: 'secret' });
    const environment = { ...server.environment, DATABASE_URL: url };
    const run = async (script: string, ...args: string[]) => {
      const { code, stdout, stderr } = await runCommand(`scripts/${script}.ts`, args, environment);
      expect({ code, stderr }, stdout).to.deep.equal({ code: 0, stderr: '' });
      return stdout;
    };
    await run('control', 'migrate');
    await run('tenant', 'pool', 'fill', '--size', '2');
    const made = await run('tenant', 'provision', 'acme', '--name', 'Acme', '--admin-email', 'a@acme.test', '--json');
    expect(JSON.parse(made).database).to.match(/^operator_acme_/);
    expect(JSON.parse(await run('tenant', 'pool', 'list', '--json'))).to.have.length(1);
    await server.sql(`update warm_databases set digest = 'another'`, 'operator');
    const [filled] = JSON.parse(await run('tenant', 'pool', 'fill', '--size', '1', '--json'));
    expect(filled).to.include({ ready: 1, made: 1, dropped: 1, error: null });
    await run('tenant', 'doctor');
  });

  const moments: [string, string, RegExp, string][] = [
    ['before it writes its row', 'lock table tenants in exclusive mode', /insert into "tenants"/i, 'none'],
    ['before it renames', 'lock table pg_database in share mode', /alter database/, 'provisioning'],
    ['while it renames', 'lock table pg_authid in share mode', /alter database/, 'provisioning'],
    ['before it adds its users', 'lock table users in exclusive mode', /delete from "users"/i, 'provisioning'],
  ];
  for (const [moment, lock, waiting, left] of moments) {
    it(`a provision that is killed ${moment} loses no warm database and is completed by the next run`, async () => {
      await fill(1);
      const [ready = '', ...rest] = await poolLines();
      const slug = `killed-${moment.replaceAll(' ', '-')}`;
      expect(await stopAt(slug, lock, waiting)).to.equal(left);
      expect(await poolLines()).to.deep.equal(left === 'none' ? [ready, ...rest] : rest);
      expect(await findings(true)).to.deep.equal(left === 'none' ? [] : [['stuck_provisioning', slug]]);
      await fill(1);
      const { tenant: completed, created } = await server.provision(slug);
      expect([created, completed.status]).to.deep.equal([true, 'active']);
      expect(ready).to.equal(`office_warm_${completed.id} ready`);
      expect(await server.sql('select guid from tenant_identity', completed.databaseName)).to.deep.equal([
        { guid: completed.guid },
      ]);
      await expectNoOrphan();
    });
  }

  for (const [moment, lock, waiting] of [
    ['before it creates its database', 'lock table pg_database in share mode', /create database/],
    ['before it creates its role', 'lock table pg_authid in share mode', /create role/],
  ] as const) {
    it(`a pool fill that is killed ${moment} is completed by the next pool fill`, async () => {
      const size = (await poolLines()).length + 2;
      const holder = await hold(lock);
      const filling = startScript('scripts/tenant.ts', ['pool', 'fill', '--size', String(size)], server.environment);
      await killWhen(filling, waiting, holder);
      await eventually(async () => (await poolLines()).some(line => line.endsWith('unfinished')));
      expect(await findings(true)).to.deep.include(['warm_leftover', null]);
      expect(await fill(size)).to.include({ ready: size, error: null });
      await expectNoOrphan();
    });
  }

  // These two are last: every later check of all tenants would include their 40 tenants.

  it('16 concurrent provisions get different warm databases and leave none behind', async () => {
    await fill(8);
    const slugs = Array.from({ length: 16 }, (_, number) => `many-${number}`);
    const all = await Promise.all(slugs.map(slug => provision(server.installation, passwords, manifestOf(slug))));
    expect(all.every(({ created }) => created)).to.equal(true);
    expect(new Set(all.map(({ tenant: { id } }) => id)).size).to.equal(16);
    expect(await poolLines()).to.deep.equal([]);
    await expectNoOrphan();
  });

  it('three processes that provision the same 12 tenants during a fill create each tenant once', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'backoffice-manifests-'));
    try {
      const slugs = Array.from({ length: 12 }, (_, number) => `folder-${number}`);
      for (const slug of slugs) await writeFile(join(folder, `${slug}.json`), JSON.stringify(manifestOf(slug)));
      await writeFile(join(folder, 'bad.json'), '{ "slug": "postgres" }');
      await writeFile(join(folder, 'broken.json'), '{');
      await writeFile(join(folder, 'elsewhere.json'), JSON.stringify({ ...manifestOf('nowhere'), server: 'none' }));
      const start = (...args: string[]) => runScript('scripts/tenant.ts', args, server.environment);
      const [filling, ...runs] = await Promise.all([
        start('pool', 'fill', '--size', '6', '--json'),
        start('provision', '--file', folder, '--json'),
        start('provision', '--file', folder, '--json'),
        start('provision', '--file', folder, '--json'),
      ]);
      expect(filling?.code, filling?.stderr).to.equal(0);
      const made = new Map<string, number>();
      for (const { code, stdout, stderr } of runs) {
        expect({ code, stderr }).to.deep.equal({ code: 1, stderr: '' });
        const lines = stdout
          .trim()
          .split('\n')
          .map(line => JSON.parse(line));
        expect(lines).to.have.length(15);
        expect(
          lines
            .filter(({ error }) => error)
            .map(({ file }) => file)
            .sort(),
        ).to.deep.equal(['bad.json', 'broken.json', 'elsewhere.json']);
        for (const { slug, created } of lines) if (created) made.set(slug, (made.get(slug) ?? 0) + 1);
      }
      expect([...made].sort()).to.deep.equal(slugs.sort().map(slug => [slug, 1]));
      const guids = await server.control<{ guid: string; database: string }>(
        `select guid, database_name as database from tenants where slug like 'folder-%'`,
      );
      for (const { guid, database } of guids)
        expect(await server.sql('select guid from tenant_identity', database), database).to.deep.equal([{ guid }]);
      const again = await runTenant('provision', '--file', folder);
      expect(again.code).to.equal(1);
      expect(again.stdout)
        .to.include('folder-0 exists already: nothing was changed.')
        .and.to.include('15 manifests, 3 failed.');
      await expectNoOrphan();
    } finally {
      await rm(folder, { recursive: true });
    }
  });

  async function hold(lock: string): Promise<pg.Client> {
    const holder = new pg.Client(lock.includes('pg_') ? server.url : server.environment.DATABASE_URL);
    await holder.connect();
    await holder.query('begin');
    await holder.query(lock);
    return holder;
  }

  /** Kills a process once it waits for the lock, and waits until its database sessions have ended. */
  async function killWhen(running: ReturnType<typeof startScript>, waiting: RegExp, holder: pg.Client): Promise<void> {
    const sessions = () =>
      server.sql<{ query: string; waits: boolean }>(
        `select query, coalesce(wait_event_type = 'Lock', false) as waits from pg_stat_activity
          where application_name ~ '^backoffice-(operator|control)' and backend_type = 'client backend'
            and query <> '' and state <> 'idle' and pid <> pg_backend_pid()`,
      );
    try {
      await eventually(async () => (await sessions()).some(({ query, waits }) => waits && waiting.test(query)), 60_000);
      running.process.kill('SIGKILL');
      await running.ended;
    } finally {
      running.process.kill('SIGKILL');
      await holder.query('rollback');
      await holder.end();
    }
    await eventually(async () => (await sessions()).length === 0);
  }

  /** Kills a provision that waits for the lock; returns the state of its tenant afterwards. */
  async function stopAt(slug: string, lock: string, waiting: RegExp): Promise<string> {
    const holder = await hold(lock);
    const args = ['provision', slug, '--name', slug, '--admin-email', `admin@${slug}.test`];
    await killWhen(startScript('scripts/tenant.ts', args, server.environment), waiting, holder);
    const [left] = await server.control<{ status: string }>(`select status from tenants where slug = '${slug}'`);
    return left?.status ?? 'none';
  }
});
