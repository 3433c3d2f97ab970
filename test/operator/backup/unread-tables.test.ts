import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { membersOf } from '../../support/age-archives.ts';
import { backupSettings } from '../../support/backup-settings.ts';
import { jsonLines } from '../../support/json-lines.ts';
import { createPlainServer } from '../../support/plain-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { useServerFolder } from '../../support/server-folder.ts';
import { succeed } from '../../support/succeed.ts';
import { use } from '../../support/use.ts';

describe('archives by a login that may not read everything', () => {
  const server = use(() => createPlainServer('createdb createrole'));
  const folder = useServerFolder('archives');
  let environment: Record<string, string>;
  /** The first run. */
  let ran: Awaited<ReturnType<typeof runCommand>>;
  let database: string;

  const tenant = (...args: string[]) => succeed(environment, 'tenant', args);
  const inDatabase = (name: string, text: string) =>
    withConnection(server.superuserUrl(name), async client => (await client.query(text)).rows);
  const inTenant = (text: string) => inDatabase(database, text);

  before(async () => {
    environment = {
      DATABASE_URL: server.url('backoffice'),
      MASTER_KEY: randomBytes(32).toString('base64'),
      ...(await backupSettings(folder)),
    };
    await succeed(environment, 'control', ['migrate']);
    for (const slug of ['acme', 'globex']) {
      await tenant('provision', slug, '--name', slug, '--admin-email', `a@${slug}.test`);
    }
    [{ database }] = JSON.parse(await tenant('databases', 'acme', '--json'));

    await inTenant(`
      create schema reports;
      create table reports.open as select 42 as total;
      create table reports.closed as select 43 as total;
      create table reports.hidden as select 44 as total;
      alter table reports.hidden enable row level security;
      create view reports.summary as select total from reports.open;
      grant usage on schema reports to operator;
      grant select on reports.open, reports.hidden to operator;
      insert into currencies (code, name) values ('EUR', 'Euro')`);
    await tenant('backup', 'init');
    ran = await runCommand('scripts/tenant.ts', ['backup', 'run', '--all'], environment);
  });

  it('tables that it may not read are named in the output and the manifest, and all others are archived and restored', async () => {
    const { code, stdout, stderr } = ran;
    expect(code, stderr + stdout).to.equal(0);
    for (const named of [
      'table reports.closed (the login may not read it)',
      'table reports.hidden (a policy hides rows from the login)',
      'view reports.summary (it has no rows of its own)',
    ]) {
      expect(stdout).to.match(
        new RegExp(`^acme: archived .*; without .*${named.replace(/[().]/g, '\\$&')}`, 'm'),
      );
    }
    expect(stdout).to.match(/^globex: archived [^;]*$/m);

    const [newest] = JSON.parse(await tenant('backup', 'list', 'acme', '--json'));
    const identity = await readFile(environment.BACKUP_IDENTITY_FILE ?? '', 'utf8');
    const members = await membersOf({
      bytes: await readFile(join(folder, newest.name)),
      identity: { identity: identity.trim(), recipient: environment.BACKUP_RECIPIENTS ?? '' },
    });
    const { leftOut } = JSON.parse(members.at(-1)?.content.toString() ?? '');
    expect(leftOut).to.deep.include({
      name: 'table reports.closed',
      reason: 'the login may not read it',
    });
    expect(members.map(({ name }) => name).filter(name => name.includes('reports'))).to.have.length(
      1,
    );

    const restored = await runCommand(
      'scripts/tenant.ts',
      ['restore', 'acme', '--archive', 'latest', '--json'],
      environment,
    );
    expect(restored.code, restored.stderr).to.equal(0);
    const { database } = JSON.parse(restored.stdout);
    expect(await inDatabase(database, 'select code from currencies')).to.deep.equal([
      { code: 'EUR' },
    ]);
  });

  it('a restore and a clone of an archive name the file with the rows of others, and do not bring them', async () => {
    for (const command of [
      ['restore', 'acme'],
      ['clone', 'acme', 'acme-then'],
    ]) {
      const { code, stdout, stderr } = await runCommand(
        'scripts/tenant.ts',
        [...command, '--archive', 'latest', '--json'],
        environment,
      );

      expect(code, stderr).to.equal(0);
      expect(stderr, String(command)).to.match(
        /The archive of acme has rows of other schemas, which are not restored: data\/\d+-reports\.open\.\S+?\.csv\./,
      );
      expect(stderr, String(command)).to.include(
        'table reports.closed (the login may not read it)',
      );
      const made = JSON.parse(stdout).database;
      const found = await withConnection(server.superuserUrl(made), client =>
        client.query(`select from pg_namespace where nspname = 'reports'`),
      );
      expect(found.rowCount, String(command)).to.equal(0);
    }
  });

  it('a sequence of others that it may not read stops neither a swap nor the way back', async () => {
    const { database: restored } = JSON.parse(
      await tenant('restore', 'acme', '--archive', 'latest', '--json'),
    );
    await inTenant('create sequence public.of_others');

    await tenant('restore', 'swap', 'acme', '--database', restored, '--yes');
    await tenant('restore', 'back', 'acme', '--yes');

    expect(await inTenant('select is_called from public.of_others')).to.deep.equal([
      { is_called: false },
    ]);
    await inTenant('drop sequence public.of_others');
  });

  it('a table of a tenant that the login may not read fails the archive of that tenant alone, by name', async () => {
    await inTenant(
      `create table notes as select 'a note' as text; alter table notes owner to postgres`,
    ).catch(() => inTenant(`create table notes as select 'a note' as text`));

    const { code, stdout } = await runCommand(
      'scripts/tenant.ts',
      ['backup', 'run', 'acme', 'globex', '--json'],
      environment,
    );

    await inTenant('drop table notes');
    expect(code).to.equal(1);
    const outcomes = new Map(
      jsonLines(stdout).map(({ slug, state, error }) => [slug, { state, error }]),
    );
    expect(outcomes.get('acme')?.state).to.equal('failed');
    expect(outcomes.get('acme')?.error).to.match(/permission denied for table notes/);
    expect(outcomes.get('globex')?.state).not.to.equal('failed');
  });
});
