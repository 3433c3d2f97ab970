import { cp, readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { createArchivedServer } from '../../support/archived-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { makeServerFolder, useServerFolder } from '../../support/server-folder.ts';
import { documentOf } from '../../support/succeed.ts';
import { use } from '../../support/use.ts';

describe('restore of a tenant to a moment with the command for a host of its own', () => {
  const server = use(createArchivedServer);
  const archives = useServerFolder('archives');
  let environment: Record<string, string>;
  /** A database with the data of acme at a moment. */
  let restored: string;

  const tenant = async (args: string[]) =>
    documentOf(await runCommand('scripts/tenant.ts', [...args, '--json'], environment));
  const codesIn = async (database: string): Promise<string[]> =>
    (await server.sql<{ code: string }>('select code from currencies order by id', database)).map(({ code }) => code);
  const addCurrency = async (slug: string, code: string): Promise<void> =>
    void (await server.sql(
      `insert into currencies (code, name) values ('${code}', '${code}')`,
      await server.databaseOf(slug),
    ));
  const currencies = async (slug: string): Promise<string[]> => codesIn(await server.databaseOf(slug));
  /** Returns what recoveries have left. */
  const leftovers = (): Promise<string[]> => readdir(join(server.folder, 'scratch'));

  before(async () => {
    environment = { ...server.environment, BACKUP_TARGET: archives };
    for (const slug of ['acme', 'globex']) await server.provision(slug);
    await addCurrency('acme', 'EUR');
    await addCurrency('globex', 'USD');
    await server.makeBaseBackup();
    await server.makeBaseBackup(); // two are kept
  });

  it('a restore to a moment has every transaction committed by then and no later one, while another tenant changes', async () => {
    await addCurrency('acme', 'CHF');
    const moment = await server.now();
    await addCurrency('acme', 'NOK');
    await addCurrency('globex', 'CAD');
    const { code, document } = await tenant(['restore', 'acme', '--at', moment]);
    expect(code, JSON.stringify(document)).to.equal(0);
    expect(document).to.include({ slug: 'acme', restoredFrom: moment });
    restored = document.database;
    expect(await codesIn(restored)).to.deep.equal(['EUR', 'CHF']);
    expect(await currencies('acme')).to.deep.equal(['EUR', 'CHF', 'NOK']);
    expect(await currencies('globex')).to.deep.equal(['USD', 'CAD']);
    expect(await leftovers()).to.deep.equal([]);
  });

  it('a restore to a moment makes no tenant, and lets nobody into the restored database', async () => {
    const slugs = await server.control<{ slug: string }>('select slug from tenants order by slug');
    expect(slugs.map(({ slug }) => slug)).to.deep.equal(['acme', 'globex']);
    const [own] = await server.control<{ guid: string }>(`select guid from tenants where slug = 'acme'`);
    const [access] = await server.sql<{ guid: string; login: boolean }>(
      'select guid, rolcanlogin as login from tenant_identity, pg_roles where rolname = current_database()',
      restored,
    );
    expect([access?.guid === own?.guid, access?.login]).to.deep.equal([false, false]);
  });

  it('moments shows the range that can be had, and a moment before it is refused before anything is done', async () => {
    const { code, document } = await tenant(['restore', 'moments', 'acme']);
    expect(code, JSON.stringify(document)).to.equal(0);
    expect(document).to.have.length(1);
    const [{ server: name, from, until }] = document;
    expect(name).to.equal('default');
    expect(Date.parse(from)).to.be.below(Date.parse(until) + 1);
    const before = await server.control('select * from tenant_databases order by id');
    await server.control(`update tenants set created_at = created_at - interval '1 day' where slug = 'acme'`);
    const early = new Date(Date.parse(from) - 3_600_000).toISOString();
    const refused = await tenant(['restore', 'acme', '--at', early]);
    expect(refused.document.message).to.match(/^RECOVERY_COMMAND: The oldest base backup of default is of /);
    expect(await server.control('select * from tenant_databases order by id')).to.deep.equal(before);
    expect(await leftovers()).to.deep.equal([]);
  });

  it('a time without zone, in the future, on no day of the calendar, or before the tenant is refused with the reason', async () => {
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

  it('a moment whose write-ahead log is not in the archive is refused, and the scratch server is removed', async () => {
    const moment = await server.now();
    const lost = { ...environment, RECOVERY_DIR: await copyWithoutNewLog(join(server.folder, 'default', 'wal')) };
    const { stderr } = await runCommand('scripts/tenant.ts', ['restore', 'acme', '--at', moment, '--json'], lost);
    expect(JSON.parse(stderr.split('\n')[0] ?? '').error.message).to.match(
      /^RECOVERY_COMMAND: The archived write-ahead log ends before that moment/,
    );
    expect(await leftovers()).to.deep.equal([]);
    await rm(lost.RECOVERY_DIR, { recursive: true });
  });

  /** Copies the base backups with the log that they need themselves. */
  async function copyWithoutNewLog(wal: string): Promise<string> {
    const copy = await makeServerFolder('archived');
    const from = join(server.folder, 'default');
    await cp(from, join(copy, 'default'), { recursive: true });
    const bases = (await readdir(join(from, 'base'))).sort();
    const label = await readFile(join(from, 'base', bases.at(-1) ?? '', 'backup_label'), 'utf8');
    const first = /file ([0-9A-F]+)/.exec(label)?.[1] ?? '';
    for (const name of await readdir(wal)) if (name > first) await rm(join(copy, 'default', 'wal', name));
    return copy;
  }
});
