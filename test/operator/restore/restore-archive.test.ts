import { rm } from 'node:fs/promises';
import { expect } from 'chai';
import { withConnection } from '../../../src/postgres/connection.ts';
import type { Client } from '../../support/client.ts';
import { eventually } from '../../support/eventually.ts';
import { runCommand } from '../../support/run-command.ts';
import { makeServerFolder } from '../../support/server-folder.ts';
import { postgresUrl } from '../../support/test-server.ts';
import { createWorld, sql, type World } from '../../support/world.ts';

describe('restore of a tenant from an archive', () => {
  let world: World;
  let folder: string;
  let environment: Record<string, string>;
  let admin: Client;

  const tenant = async (args: string[]) => {
    const { code, stdout, stderr } = await runCommand('scripts/tenant.ts', [...args, '--json'], environment);
    return { code, document: code === 0 ? JSON.parse(stdout) : JSON.parse(stderr.split('\n')[0] ?? '').error };
  };
  const currencies = async (client: Client): Promise<string[]> =>
    (await client.get('/api/v1/Currency', { 'Cache-Control': 'no-cache' })).body.map(
      ({ Code }: { Code: string }) => Code,
    );

  before(async () => {
    world = await createWorld();
    folder = await makeServerFolder('archives');
    environment = { ...world.environment, BACKUP_TARGET: folder };
    admin = await world.login(world.acme);
    await admin.post('/api/v1/Currency', { Code: 'EUR', Name: 'Euro' });
    await admin.post('/api/v1/Currency', { Code: 'CHF', Name: 'Franc' });
    await runCommand('scripts/tenant.ts', ['backup', 'init'], environment);
    const { code, stderr } = await runCommand('scripts/tenant.ts', ['backup', 'run', '--all'], environment);
    expect(code, stderr).to.equal(0);
    await admin.post('/api/v1/Currency', { Code: 'NOK', Name: 'Krone' });
    await admin.put('/api/v1/Currency/1', { Code: 'EUR', Name: 'Changed' });
    await sql(world.acme, `delete from currencies where code = 'CHF'`);
  });
  after(async () => {
    await world.close();
    await rm(folder, { recursive: true, force: true });
  });

  it('the newest archive becomes a suspended tenant without users, and diff names what has changed since', async () => {
    const { code, document } = await tenant(['restore', 'acme', '--to', 'acme-old']);
    expect(code, JSON.stringify(document)).to.equal(0);
    expect(document).to.include({ slug: 'acme-old', status: 'suspended', source: 'acme' });
    const users = await world.control.em
      .fork()
      .execute(
        `select count(*)::int as count from users u join tenants t on t.id = u.tenant_id where slug = 'acme-old'`,
      );
    expect(users).to.deep.equal([{ count: 0 }]);
    expect(document.isolated).to.equal(true);
    const diff = await tenant(['restore', 'diff', 'acme']);
    const table = diff.document.tables.find(({ table: name }: { table: string }) => name === 'currencies');
    expect(table).to.deep.equal({
      table: 'currencies',
      added: 1,
      changed: 1,
      gone: 1,
      keys: { added: ['3'], changed: ['1'], gone: ['2'] },
    });
    expect(diff.document.tables.map((each: { table: string }) => each.table)).to.include('audit_log');
  });

  it('swap puts the restored data in place and back takes it out again, and no request of the tenant fails', async () => {
    const other = await world.login(world.globex);
    const statuses: number[] = [];
    let isRunning = true;
    const reading = (async () => {
      while (isRunning) statuses.push((await admin.get('/api/v1/Currency', { 'Cache-Control': 'no-cache' })).status);
    })();
    const swap = await tenant(['restore', 'swap', 'acme', '--yes']);
    expect(swap.code, JSON.stringify(swap.document)).to.equal(0);
    expect(swap.document).to.include({ tenant: 'acme', side: 'acme-old', isSwapped: true });
    expect(await currencies(admin)).to.have.members(['EUR', 'CHF']);
    const created = await admin.post('/api/v1/Currency', { Code: 'SEK', Name: 'Krona' });
    expect([created.status, created.body.Id]).to.deep.equal([201, 3]);
    const entries = (await admin.get('/api/v1/AuditLog?resource=Currency')).body;
    expect(entries[0]).to.deep.include({ Action: 'create' });
    const doctor = await runCommand('scripts/tenant.ts', ['doctor', '--json'], environment);
    // Other tests have databases on this server, too.
    const findings = JSON.parse(doctor.stdout).findings.filter(
      ({ tenant, problem }: { tenant: string | null; problem: string }) =>
        tenant !== null || problem.includes(world.acme.database),
    );
    expect(findings).to.deep.equal([]);
    const again = await tenant(['restore', 'swap', 'acme', '--yes']);
    expect(again.document).to.include({ isSwapped: true, pauseMs: 0 });
    const back = await tenant(['restore', 'back', 'acme', '--yes']);
    expect(back.document).to.include({ isSwapped: false });
    expect(await currencies(admin)).to.have.members(['EUR', 'NOK']);
    isRunning = false;
    await reading;
    expect(new Set(statuses)).to.deep.equal(new Set([200]));
    expect((await other.get('/api/v1/Currency')).status).to.equal(404); // none
  });

  it('a swap of a tenant that has an old database from a move names the command that drops it', async () => {
    const { em } = world.control;
    await em.execute(
      `insert into tenant_moves (tenant_id, state, from_server_id, from_database, from_role, to_server_id, to_database,
                                 to_role, to_password, epoch, keep_seconds, max_pause_ms)
       select id, 'switched', server_id, 'old', 'old', server_id, database_name, role_name, '', 1, 86400, 1000
         from tenants where slug = 'acme'`,
    );
    const { code, document } = await tenant(['restore', 'swap', 'acme', '--yes']);
    await em.execute('delete from tenant_moves');
    expect([code, `${document.message} ${document.hint}`]).to.deep.equal([
      1,
      'acme has two databases, because of a move. End it first: npx backoffice move settle acme',
    ]);
  });

  it('a lost database is restored by one command with a new name, and an existing one is left as it is', async () => {
    const refused = await tenant(['restore', 'acme', '--lost']);
    expect(refused.document.message).to.match(/has database .*: nothing was changed/);
    const before = await tenant(['show', 'acme']);
    // The databases of acme in the worlds of other tests have the same identity: to doctor, one of them is renamed.
    const initech = await world.provision('initech');
    for (const { database } of [before.document, initech])
      await withConnection(postgresUrl(), client => client.query(`drop database "${database}" with (force)`));
    const missing = await runCommand('scripts/tenant.ts', ['doctor', '--json'], environment);
    expect(missing.stdout).to.include('restore initech --lost');
    const { code, document } = await tenant(['restore', 'acme', '--lost']);
    expect(code, JSON.stringify(document)).to.equal(0);
    expect(document).to.include({ slug: 'acme', status: 'active' });
    expect(document.database).not.to.equal(before.document.database);
    const roles = await withConnection(postgresUrl(), client =>
      client.query('select from pg_roles where rolname = $1', [before.document.database]),
    );
    expect(roles.rowCount).to.equal(0);
    expect(await currencies(admin)).to.have.members(['EUR', 'CHF']);
    expect((await admin.post('/api/v1/Currency', { Code: 'SEK', Name: 'Krona' })).status).to.equal(201);
  });

  it('a database that was renamed, to be kept, loses its login role when its tenant is restored in a new one', async () => {
    const { database } = (await tenant(['show', 'acme'])).document;
    const onServer = (text: string) => withConnection(postgresUrl(), client => client.query(text));
    await onServer(`
      select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = '${database}'`);
    await onServer(`alter database "${database}" rename to "${database}_broken"`);
    const { code, document } = await tenant(['restore', 'acme', '--lost']);
    expect(code, JSON.stringify(document)).to.equal(0);
    const { rows } = await onServer(`
      select exists (select from pg_roles where rolname = '${database}') as role,
             exists (select from pg_database where datname = '${database}_broken') as database`);
    expect(rows).to.deep.equal([{ role: false, database: true }]);
    expect(await currencies(admin)).to.have.members(['EUR', 'CHF']);
    await onServer(`drop database "${database}_broken"`);
  });

  it('a half restored database is neither served nor migrated nor archived, and doctor names the command', async () => {
    const states = (text: string): Promise<unknown> => world.control.em.fork().execute(text);
    await states(`update tenants set restoring = 'an archive', schema_version = null where slug = 'acme'`);
    const migrated = await runCommand('scripts/tenant.ts', ['migrate', 'acme'], environment);
    expect([migrated.code, (migrated.stdout + migrated.stderr).includes('half restored')]).to.deep.equal([1, true]);
    const archived = await runCommand('scripts/tenant.ts', ['backup', 'run', 'acme'], environment);
    expect([archived.code, archived.stdout.includes('half restored')]).to.deep.equal([1, true]);
    await eventually(async () => (await admin.get('/api/v1/Currency')).status === 503);
    const doctor = await runCommand('scripts/tenant.ts', ['doctor', '--json'], environment);
    const found = JSON.parse(doctor.stdout).findings.find(
      ({ check }: { check: string }) => check === 'unfinished_restore',
    );
    expect(found).to.include({ tenant: 'acme', severity: 'error' });
    const { code, document } = await tenant(['restore', 'acme', '--lost']);
    expect(code, JSON.stringify(document)).to.equal(0);
    expect(await currencies(admin)).to.have.members(['EUR', 'CHF']);
  });
});
