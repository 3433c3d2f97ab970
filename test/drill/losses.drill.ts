import { randomBytes } from 'node:crypto';
import { mkdir, readFile, rm } from 'node:fs/promises';
import { expect } from 'chai';
import { backupSettings } from '../support/backup-settings.ts';
import { createDedicatedServer, type DedicatedServer } from '../support/dedicated-server.ts';
import { runCommand } from '../support/run-command.ts';
import { makeServerFolder } from '../support/server-folder.ts';

/**
 * Returns the rows of the table of losses in the handbook: what is lost, and the first command
 * of its last column.
 */
async function readLosses(): Promise<Map<string, string>> {
  const handbook = await readFile(
    new URL('../../docs/operate/incidents.md', import.meta.url),
    'utf8',
  );
  const [, table = ''] = handbook.split('## What is lost, and which command restores it');
  const rows = [
    ...(table.split('\n##')[0] ?? '').matchAll(
      /^\| ([^|]+) \| [^|]+ \| `bin\/backoffice ([^`]+)`[^|]* \|$/gm,
    ),
  ];
  return new Map(rows.map(([, lost = '', command = '']) => [lost, command]));
}

describe('drill: the table of losses in the handbook', () => {
  let server: DedicatedServer;
  let target: string;
  let environment: Record<string, string>;
  let losses: Map<string, string>;
  const databases = new Map<string, string>();

  const run = (command: string, settings: Record<string, string> = {}) =>
    runCommand(
      command.startsWith('control ') ? 'scripts/control.ts' : 'scripts/tenant.ts',
      wordsOf(command),
      {
        ...environment,
        ...settings,
      },
    );
  const wordsOf = (command: string): string[] => command.replace(/^control /, '').split(' ');
  const succeed = async (command: string): Promise<string> => {
    const { code, stdout, stderr } = await run(command);
    expect(code, `${command}: ${stderr}${stdout}`).to.equal(0);
    return stdout;
  };
  /** Runs the command of a row, which is one of the first words of a test's title. */
  const recover = (lost: string): Promise<string> => {
    const command = losses.get(lost);
    losses.delete(lost);
    expect(command, `the handbook has a row for: ${lost}`).to.be.a('string');
    return succeed(command ?? '');
  };
  /** Expects that every tenant has its currency. */
  const expectAll = async (): Promise<void> => {
    const tenants = await server.control<{ slug: string; status: string; name: string }>(
      'select slug, status, database_name as name from tenants order by slug',
    );
    expect(tenants.map(({ slug, status }) => `${slug} ${status}`)).to.deep.equal([
      'globex active',
      'northwind active',
    ]);
    for (const { slug, name } of tenants) {
      databases.set(slug, name);
      expect(await server.sql('select code from currencies', name), slug).to.deep.equal([
        { code: slug.slice(0, 3) },
      ]);
    }
  };
  const dropTenant = (slug: string) =>
    server.sql(`drop database "${databases.get(slug)}" with (force)`);

  before(async () => {
    [server, target, losses] = await Promise.all([
      createDedicatedServer(),
      makeServerFolder('archives'),
      readLosses(),
    ]);
    environment = { ...server.environment, ...(await backupSettings(target)) };
    for (const slug of ['northwind', 'globex']) {
      const { tenant } = await server.provision(slug);
      await server.sql(
        `insert into currencies (code, name) values ('${slug.slice(0, 3)}', '${slug}')`,
        tenant.databaseName,
      );
    }
    for (const command of ['backup init', 'backup run --all']) await succeed(command);
    await expectAll();
  });
  after(async () => {
    await server.close();
    await rm(target, { recursive: true, force: true });
  });

  it('the lines for a lost machine restore everything', async () => {
    for (const slug of databases.keys()) await dropTenant(slug);
    await server.sql('drop database office with (force)');
    await recover('The machine, with every database');
    await expectAll();
  });

  it('the line for a tenant that was deleted by mistake lets it be served again', async () => {
    await succeed('delete northwind --yes');
    await recover('A tenant, deleted by mistake');
    await expectAll();
  });

  it('the line for lost rows restores those of an earlier time beside the tenant', async () => {
    await recover('Rows of a tenant, some time ago');
    const restored = await server.control<{ name: string }>(
      `select database_name as name from tenant_databases where state = 'filled'`,
    );
    expect(restored).to.have.length(1);

    for (const { name } of restored) {
      expect(await server.sql('select code from currencies', name)).to.deep.equal([
        { code: 'nor' },
      ]);
      await succeed(`databases drop northwind ${name} --yes`);
    }

    await expectAll();
  });

  it('the line for a lost database of a tenant restores it', async () => {
    await dropTenant('northwind');
    await recover('The database of a tenant');
    await expectAll();
  });

  it('the line for a lost server restores all its databases', async () => {
    for (const slug of databases.keys()) await dropTenant(slug);
    await recover('A PostgreSQL server with tenants');
    await expectAll();
    await succeed('backup run --all');
  });

  it('the line for a lost control database restores it', async () => {
    await server.sql('drop database office with (force)');
    await recover('The control database');
    await expectAll();
    await succeed('backup run --all');
  });

  it('the line for lost commits of the control database serves no older data, and names the command that serves the newer', async () => {
    const lost =
      "The last commits of the control database alone, while the tenants' servers are newer";
    await server.sql('create database office_before template office');
    await server.sql('revoke all on database office_before from public');
    await succeed('restore northwind --archive latest');
    await succeed('restore swap northwind --yes');
    const [newer] = await server.control<{ name: string }>(
      `select database_name as name from tenants where slug = 'northwind'`,
    );

    await server.sql('drop database office with (force)');
    await server.sql('alter database office_before rename to office');
    const command = losses.get(lost);
    losses.delete(lost);
    const { code, stderr } = await run(command ?? '');

    expect(code, stderr).to.equal(1);
    const swap = `restore swap northwind --database ${newer?.name}`;
    expect(stderr).to.include(`bin/backoffice ${swap}`);
    await succeed(`${swap} --yes`);
    await expectAll();
    expect(databases.get('northwind')).to.equal(newer?.name);
    await succeed('backup run --all');
  });

  it('the line for a lost target archives all tenants to a new one', async () => {
    await rm(target, { recursive: true });
    await mkdir(target);
    await recover('The target');
    expect(await succeed('backup run --all')).to.match(/does not have the newest archive of/);
    for (const command of ['backup run --all', 'backup verify']) await succeed(command);
  });

  it('a wrong copy of the master key is refused and changes nothing, the right one is accepted, and no row is left', async () => {
    const wrong = { MASTER_KEY: randomBytes(32).toString('base64') };
    const refused = await run(losses.get('The master key') ?? '', wrong);
    expect(refused.code, refused.stderr).to.equal(1);
    expect(refused.stdout).to.equal('');
    expect(refused.stderr).to.match(/^MASTER_KEY is not the master key of this control database/);
    await recover('The master key');
    expect([...losses.keys()]).to.deep.equal([]);
  });
});
