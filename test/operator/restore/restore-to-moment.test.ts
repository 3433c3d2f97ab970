import { execFileSync } from 'node:child_process';
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { withRecoveredDatabase } from '../../../src/operator/restore/moment/recover-database.ts';
import { createDedicatedServer, type DedicatedServer } from '../../support/dedicated-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { makeServerFolder } from '../../support/server-folder.ts';

const commandLine = fileURLToPath(new URL('../../../scripts/tenant.ts', import.meta.url));

describe('restore of a tenant to a moment', () => {
  let server: DedicatedServer;
  let folder: string;
  let archives: string;
  let environment: Record<string, string>;
  /** The database with the data of acme at a moment. */
  let restored: string;

  const tenant = async (args: string[]) => {
    const { code, stdout, stderr } = await runCommand('scripts/tenant.ts', [...args, '--json'], environment);
    return { code, document: code === 0 ? JSON.parse(stdout) : JSON.parse(stderr.split('\n')[0] ?? '').error };
  };
  const databaseOf = async (slug: string): Promise<string> =>
    (await server.control<{ name: string }>(`select database_name as name from tenants where slug = '${slug}'`))[0]
      ?.name ?? '';
  const codesIn = async (database: string): Promise<string[]> =>
    (await server.sql<{ code: string }>('select code from currencies order by id', database)).map(({ code }) => code);
  const addCurrency = async (slug: string, code: string): Promise<void> =>
    void (await server.sql(
      `insert into currencies (code, name) values ('${code}', '${code}')`,
      await databaseOf(slug),
    ));
  const currencies = async (slug: string): Promise<string[]> => codesIn(await databaseOf(slug));
  const now = async (): Promise<string> =>
    (
      await server.sql<{ at: string }>(
        `select to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as at`,
      )
    )[0]?.at ?? '';

  before(async () => {
    server = await createDedicatedServer();
    folder = await makeServerFolder('base');
    archives = await makeServerFolder('archives');
    environment = { ...server.environment, BASE_BACKUP_DIR: folder, BACKUP_TARGET: archives };
    await server.provision('acme');
    await server.provision('globex');
    await addCurrency('acme', 'EUR');
    await addCurrency('globex', 'USD');
    const { code, document } = await tenant(['backup', 'base']);
    expect(code, JSON.stringify(document)).to.equal(0);
  });
  after(async () => {
    await server.close();
    for (const path of [folder, archives]) await rm(path, { recursive: true, force: true });
  });

  it('has every transaction that was committed by then and no later one, while another tenant changes', async () => {
    await addCurrency('acme', 'CHF');
    const moment = await now();
    await addCurrency('acme', 'NOK');
    // Changes of pages that the recovery of acme does not have.
    await server.sql(`update currencies set name = 'changed'`, await databaseOf('globex'));
    await server.sql('vacuum full currencies', await databaseOf('globex'));
    for (let count = 0; count < 3; count++) await addCurrency('globex', `X0${count}`);
    const { code, document } = await tenant(['restore', 'acme', '--at', moment]);
    expect(code, JSON.stringify(document)).to.equal(0);
    expect(document).to.include({ slug: 'acme', restoredFrom: moment });
    restored = document.database;
    expect(await codesIn(restored)).to.deep.equal(['EUR', 'CHF']);
    expect(await currencies('acme')).to.deep.equal(['EUR', 'CHF', 'NOK']);
    expect(await currencies('globex')).to.deep.equal(['USD', 'X00', 'X01', 'X02']);
  });

  it('restores a tenant that was provisioned after the base backup', async () => {
    await server.provision('initech');
    await addCurrency('initech', 'SEK');
    const moment = await now();
    await server.sql('delete from currencies', await databaseOf('initech'));
    const { code, document } = await tenant(['restore', 'initech', '--at', moment]);
    expect(code, JSON.stringify(document)).to.equal(0);
    expect(await codesIn(document.database)).to.deep.equal(['SEK']);
  });

  it('makes no tenant and lets nobody into the restored database, and leaves nothing of the scratch server', async () => {
    const slugs = await server.control<{ slug: string }>('select slug from tenants order by slug');
    expect(slugs.map(({ slug }) => slug)).to.deep.equal(['acme', 'globex', 'initech']);
    const [own] = await server.control<{ guid: string }>(`select guid from tenants where slug = 'acme'`);
    const [access] = await server.sql<{ guid: string; login: boolean }>(
      'select guid, rolcanlogin as login from tenant_identity, pg_roles where rolname = current_database()',
      restored,
    );
    expect([access?.guid === own?.guid, access?.login]).to.deep.equal([false, false]);
    expect((await readdir(join(folder, 'default'))).filter(name => !name.startsWith('base-'))).to.deep.equal(['wal']);
  });

  it('is refused with the reason without a base backup for the moment, and for a time without zone, in the future or on no day of the calendar', async () => {
    const cases: [string, string, RegExp][] = [
      ['2026-11-21T14:05:00', 'usage', /zone/],
      ['2999-01-01T00:00:00Z', 'usage', /future/],
      ['2026-02-30T00:00:00Z', 'usage', /2026-02-30T00:00:00Z is no day of the calendar/],
      ['2020-01-01T00:00:00Z', 'failed', /did not exist then/],
    ];
    for (const [at, code, message] of cases) {
      const result = await tenant(['restore', 'acme', '--at', at]);
      expect(result.document.code, at).to.equal(code);
      expect(result.document.message, at).to.match(message);
    }
  });

  it('a lost database comes back with every transaction until the moment, even if its drop was the next one, and is served', async () => {
    await addCurrency('acme', 'JPY');
    const moment = await now();
    const database = await databaseOf('acme');
    await server.sql(`drop database "${database}" with (force)`);
    const { code, document } = await tenant(['restore', 'acme', '--lost', '--at', moment]);
    expect(code, JSON.stringify(document)).to.equal(0);
    expect(document).to.include({ slug: 'acme', status: 'active', restoredFrom: moment });
    expect(await databaseOf('acme')).not.to.equal(database);
    expect(await currencies('acme')).to.deep.equal(['EUR', 'CHF', 'NOK', 'JPY']);
    await addCurrency('acme', 'PLN');
    const { stdout } = await runCommand('scripts/tenant.ts', ['doctor', '--json'], environment);
    const errors = JSON.parse(stdout).findings.filter(({ severity }: { severity: string }) => severity === 'error');
    expect(errors).to.deep.equal([]);
  });

  it('a moment before or after a swap is recovered from the database that the tenant had then', async () => {
    const before = await now();
    const former = await currencies('acme');
    await addCurrency('acme', 'DKK');
    const swap = await tenant(['restore', 'swap', 'acme', '--database', restored, '--yes']);
    expect(swap.code, JSON.stringify(swap.document)).to.equal(0);
    const after = await now();
    expect((await tenant(['restore', 'back', 'acme', '--yes'])).code).to.equal(0);
    for (const [at, codes] of [
      [before, former],
      [after, ['EUR', 'CHF']],
    ] as const) {
      const { code, document } = await tenant(['restore', 'acme', '--at', at]);
      expect(code, JSON.stringify(document)).to.equal(0);
      expect(await codesIn(document.database)).to.deep.equal(codes);
    }
  });

  it('the control database of a moment has the users of then, no session, and what an archive knows as disabled', async () => {
    const control = (...args: string[]) => runCommand('scripts/control.ts', [...args, '--json'], environment);
    for (const name of ['nora', 'otto']) await tenant(['user', 'add', 'acme', `${name}@acme.test`, '--role', 'Member']);
    const moment = await now();
    await tenant(['user', 'add', 'acme', 'paul@acme.test', '--role', 'Member']);
    await tenant(['user', 'disable', 'acme', 'otto@acme.test']);
    await runCommand('scripts/tenant.ts', ['backup', 'init'], environment);
    const { code: backup, stdout } = await runCommand(
      'scripts/tenant.ts',
      ['backup', 'run', '--all', '--json'],
      environment,
    );
    expect(backup, stdout).to.equal(0);
    const before = await server.control('select id, database_name from tenants order by id');
    await server.sql('drop database office with (force)');
    const { code, stdout: lines, stderr } = await control('restore', '--at', moment);
    expect(code, stderr).to.equal(0);
    const restored = JSON.parse(lines.split('\n')[0] ?? '');
    expect(restored.file).to.equal(moment);
    expect(restored.replayed).to.include({ users: 1, clients: 0, tenants: 0 });
    const users = await server.control(
      `select split_part(email, '@', 1) as name, disabled_at is null as active from users
        where email like '%@acme.test' and email not like 'admin%' order by email`,
    );
    expect(users).to.deep.equal([
      { name: 'nora', active: true },
      { name: 'otto', active: false },
    ]);
    expect(await server.control('select id, database_name from tenants order by id')).to.deep.equal(before);
    expect(await server.control('select from sessions where revoked_at is null')).to.deep.equal([]);
    const doctor = await runCommand('scripts/tenant.ts', ['doctor', '--json'], environment);
    const errors = JSON.parse(doctor.stdout).findings.filter(
      ({ severity }: { severity: string }) => severity === 'error',
    );
    expect(errors).to.deep.equal([]);
    expect((await readdir(join(folder, 'default'))).filter(name => !name.startsWith('base-'))).to.deep.equal(['wal']);
  });

  it('prune removes older base backups and the write-ahead log that only they need, and the moments since stay reachable', async () => {
    const { document: base } = await tenant(['backup', 'base', '--keep', '7d']);
    await addCurrency('globex', 'AUD');
    const moment = await now();
    await addCurrency('globex', 'CAD');
    expect((await readdir(join(folder, 'default'))).filter(name => name.startsWith('base-'))).to.have.length(2);
    const { code, document } = await tenant(['backup', 'prune', '--base', '--keep', '1']);
    expect(code, JSON.stringify(document)).to.equal(0);
    expect(document.servers[0]).to.include({ server: 'default', baseBackups: 1, from: base.finishedAt });
    expect(document.servers[0].segments).to.be.greaterThan(0);
    const then = await tenant(['restore', 'globex', '--at', moment]);
    expect(then.code, JSON.stringify(then.document)).to.equal(0);
    expect(await codesIn(then.document.database))
      .to.include('AUD')
      .and.not.include('CAD');
    const before = await tenant(['restore', 'globex', '--at', base.startedAt]);
    expect(before.document.message).to.match(/^The oldest base backup of server default is of /);
  });

  it('a removal of base backups beside a running restore keeps what the restore reads, and says so', async () => {
    await addCurrency('globex', 'BRL');
    const moment = await now();
    const oldest = (await readdir(join(folder, 'default'))).filter(name => name.startsWith('base-')).sort()[0] ?? '';
    const id = oldest.replace('base-', '');
    await tenant(['backup', 'base', '--keep', '7d']);
    const steps: string[] = [];
    const onStep = (step: string): void => {
      const args = [commandLine, 'backup', 'prune', '--base', '--keep', '1', '--json'];
      const { servers } = JSON.parse(
        execFileSync(process.execPath, args, { env: { ...process.env, ...environment }, encoding: 'utf8' }),
      );
      expect(servers[0].held).to.deep.equal([{ id, pid: process.pid }]);
      steps.push(step);
    };
    const database = await databaseOf('globex');
    const wanted = { root: folder, server: 'default', url: server.url, database, formerNames: [], onStep };
    const codes = await withRecoveredDatabase({ ...wanted, moment: new Date(moment), at: moment }, async client => {
      const { rows } = await client.query<{ code: string }>('select code from currencies order by id');
      return rows.map(({ code }) => code);
    });
    expect(codes).to.include('BRL');
    expect(steps).to.have.length(2);
    const { document } = await tenant(['backup', 'prune', '--base', '--keep', '1']);
    expect(document.servers[0]).to.deep.include({ baseBackups: 1, held: [] });
  });
});
