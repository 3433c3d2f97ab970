import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { closedStamp } from '../../../src/operator/databases/database-stamp.ts';
import { withConnection } from '../../../src/postgres/connection.ts';
import { addByHand, readAddedByHand } from '../../support/added-by-hand.ts';
import { type CopiedServer, copyServer } from '../../support/copied-server.ts';
import { createDedicatedServer } from '../../support/dedicated-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { makeServerFolder } from '../../support/server-folder.ts';
import { documentOf } from '../../support/succeed.ts';
import { use } from '../../support/use.ts';

describe('restore of a tenant from a recovered server', () => {
  const server = use(createDedicatedServer);
  /** A copy of the server, before a currency of acme was deleted. */
  let recovered: CopiedServer;
  let ofAcme: string;
  let ofGlobex: string;
  /** What every command has printed. */
  const printed: string[] = [];

  const tenant = async (args: string[], input = '', command?: string) => {
    const environment = { ...server.environment, ...(command && { RECOVERY_COMMAND: command }) };
    const result = await runCommand('scripts/tenant.ts', [...args, '--json'], environment, input);
    printed.push(result.stdout, result.stderr);
    return documentOf(result);
  };
  const restoreFrom = (slug: string, url: string, ...options: string[]) =>
    tenant(['restore', slug, '--from', ...options], url);
  const codesIn = async (database: string): Promise<string[]> =>
    (await server.sql<{ code: string }>('select code from currencies order by id', database)).map(({ code }) => code);
  const addCurrency = async (slug: string, code: string): Promise<void> =>
    void (await server.sql(
      `insert into currencies (code, name) values ('${code}', '${code}')`,
      await server.databaseOf(slug),
    ));
  const databases = () => server.control('select database_name, state from tenant_databases order by id');
  const passwordOf = (url: string): string => new URL(url).password;

  before(async () => {
    for (const slug of ['acme', 'globex']) await server.provision(slug);
    for (const code of ['EUR', 'CHF']) await addCurrency('acme', code);
    await addCurrency('globex', 'USD');
    [ofAcme, ofGlobex] = [await server.databaseOf('acme'), await server.databaseOf('globex')];
    recovered = await copyServer(server.url);
    await server.sql(`delete from currencies where code = 'CHF'`, await server.databaseOf('acme'));
    await addCurrency('globex', 'CAD');
  });
  after(async () => {
    await recovered.close();
  });

  it('a tenant gets the data of the recovered server beside its own, and another tenant keeps what it has', async () => {
    const { code, document } = await restoreFrom('acme', recovered.url);
    expect(code, JSON.stringify(document)).to.equal(0);
    expect(document).to.include({ slug: 'acme', server: 'default' });
    expect(document.restoredFrom).to.match(/^recovered office_tenant_\d+, last change \d{4}-/);
    expect(await codesIn(document.database)).to.deep.equal(['EUR', 'CHF']);
    expect(await codesIn(await server.databaseOf('acme'))).to.deep.equal(['EUR']);
    expect(await codesIn(await server.databaseOf('globex'))).to.deep.equal(['USD', 'CAD']);
    const diff = await tenant(['restore', 'diff', 'acme']);
    const table = diff.document.tables.find((each: { table: string }) => each.table === 'currencies');
    expect(table).to.include({ added: 0, changed: 0, gone: 1 });
  });

  it('the recovered server stays as it is, and the former name of a tenant is found after a swap', async () => {
    const former = await server.databaseOf('acme');
    const swap = await tenant(['restore', 'swap', 'acme', '--yes']);
    expect(swap.code, JSON.stringify(swap.document)).to.equal(0);
    const { code, document } = await restoreFrom('acme', recovered.url);
    expect(code, JSON.stringify(document)).to.equal(0);
    expect(document.restoredFrom).to.include(former);
    expect(await codesIn(document.database)).to.deep.equal(['EUR', 'CHF']);
    expect(await server.databaseOf('acme')).not.to.equal(former);
  });

  it('a clone gets the data of the recovered server, and is a tenant of its own', async () => {
    const { code, document } = await tenant(['clone', 'globex', 'globex-then', '--from'], recovered.url);
    expect(code, JSON.stringify(document)).to.equal(0);
    expect(await codesIn(await server.databaseOf('globex-then'))).to.deep.equal(['USD']);
  });

  it('tables and columns that were added by hand come from the recovered server, with their data and types', async () => {
    await addCurrency('globex', 'CHF');
    const own = await copyServer(server.url);
    await withConnection(databaseUrl(own.url, ofGlobex), client => client.query(addByHand));
    const was = await withConnection(databaseUrl(own.url, ofGlobex), client => client.query(readAddedByHand));
    const restored = await restoreFrom('globex', own.url);
    const cloned = await tenant(['clone', 'globex', 'globex-noted', '--from'], own.url);
    await own.close();
    for (const { code, document } of [restored, cloned]) {
      expect(code, JSON.stringify(document)).to.equal(0);
      expect(await server.sql(readAddedByHand, document.database)).to.deep.equal(was.rows);
    }
  });

  it('a lost database comes back from the recovered server, and is served', async () => {
    await server.sql(`drop database "${await server.databaseOf('globex')}" with (force)`);
    const { code, document } = await restoreFrom('globex', recovered.url, '--lost');
    expect(code, JSON.stringify(document)).to.equal(0);
    expect(document).to.include({ slug: 'globex', status: 'active' });
    expect(await codesIn(await server.databaseOf('globex'))).to.deep.equal(['USD']);
  });

  it('a database that was closed at the moment is found by the stamp of a closed database', async () => {
    const [{ guid } = { guid: '' }] = await server.control<{ guid: string }>(
      `select guid from tenants where slug = 'globex'`,
    );
    await withConnection(databaseUrl(recovered.url, ofGlobex), client =>
      client.query('update tenant_identity set guid = $1', [closedStamp(guid)]),
    );
    const { code, document } = await restoreFrom('globex', recovered.url);
    expect(code, JSON.stringify(document)).to.equal(0);
    expect(document.restoredFrom).to.include(ofGlobex);
    expect(await codesIn(document.database)).to.deep.equal(['USD']);
  });

  it('a server of another installation is refused by the stamp of its database, and nothing is changed', async () => {
    // Its database has the same name.
    await withConnection(databaseUrl(recovered.url, ofAcme), client =>
      client.query('update tenant_identity set guid = gen_random_uuid()'),
    );
    const before = await databases();
    const { code, document } = await restoreFrom('acme', recovered.url);
    expect(code).to.equal(1);
    expect(document.message).to.match(/has no database of acme that can be read: nothing was changed\.$/);
    expect(document.hint).to.match(/belongs to another tenant, or to another installation\.$/);
    expect(await databases()).to.deep.equal(before);
  });

  it('a server that has no database of the tenant is refused, with the names that were looked for', async () => {
    const { document: made } = await tenant(['provision', 'initech', '--name', 'Initech', '--admin', 'a@initech.test']);
    const { code, document } = await restoreFrom('initech', recovered.url);
    expect(code, JSON.stringify(made)).to.equal(1);
    expect(`${document.message} ${document.hint}`).to.include(await server.databaseOf('initech'));
  });

  it('a URL is refused as an argument, and when it is no PostgreSQL URL or cannot be used, without being shown', async () => {
    const wrong = new URL(recovered.url);
    wrong.password = 'wrong-and-secret';
    const asArgument = await tenant(['restore', 'acme', '--from', wrong.href]);
    expect([asArgument.code, asArgument.document.code]).to.deep.equal([2, 'usage']);
    const noUrl = await restoreFrom('acme', 'https://wrong-and-secret@db.test');
    expect([noUrl.code, noUrl.document.code]).to.deep.equal([2, 'usage']);
    const refused = await restoreFrom('acme', wrong.href);
    expect(refused.document.message).to.equal('The recovered server cannot be used: the password is wrong.');
    const both = await restoreFrom('acme', recovered.url, '--archive', 'latest');
    const planned = await restoreFrom('acme', recovered.url, '--archive', 'latest', '--dry-run');
    for (const { document } of [both, planned])
      expect(document).to.include({ code: 'usage', message: 'Give one of --at, --archive and --from.' });
  });

  it('a restore that fails leaves no database, and says why', async () => {
    const before = await databases();
    await withConnection(databaseUrl(recovered.url, ofGlobex), client =>
      client.query(`alter table currencies drop constraint currencies_decimal_places_check;
                    update currencies set decimal_places = 7`),
    );
    const { code, document } = await restoreFrom('globex', recovered.url);
    expect(code).to.equal(1);
    expect(document.message)
      .to.include('The command has stopped')
      .and.include('globex is served by default, as before');
    expect(await databases()).to.deep.equal(before);
  });

  it('a moment without RECOVERY_COMMAND is refused, and says what to set and what to do without it', async () => {
    for (const args of [
      ['restore', 'acme', '--at', '2026-01-01T00:00:00Z'],
      ['restore', 'acme', '--at', '2026-01-01T00:00:00Z', '--dry-run'],
      ['restore', 'moments', 'acme'],
    ]) {
      const { code, document } = await tenant(args);
      expect([code, document.message]).to.deep.equal([
        1,
        'RECOVERY_COMMAND is not set, so no server can be recovered to a moment.',
      ]);
      expect(document.hint).to.match(/^Set it to the path of a program that does, .*restore <slug> --from < url-file/);
    }
  });

  it('a server that was recovered to another time, or still recovers, is refused without a change, and its command ends', async () => {
    const [{ at } = { at: '' }] = await server.sql<{ at: string }>(
      `select to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as at`,
    );
    const before = await databases();
    const refusalOf = async (copy: CopiedServer): Promise<string> => {
      const folder = await makeServerFolder('command');
      const [command, ended] = [join(folder, 'recover'), join(folder, 'ended')];
      await writeFile(command, `#!/bin/sh\necho '${copy.url}'; cat > /dev/null; touch ${ended}\n`, { mode: 0o755 });
      const { code, document } = await tenant(['restore', 'acme', '--at', at], '', command);
      expect([code, await readFile(ended, 'utf8')]).to.deep.equal([1, '']);
      expect(await databases()).to.deep.equal(before);
      await copy.close();
      await rm(folder, { recursive: true });
      return document.message;
    };
    const elsewhere = await copyServer(server.url, { extraSettings: ['recovery_target_time=2026-01-01 00:00:00+00'] });
    expect(await refusalOf(elsewhere)).to.match(
      / was recovered to 2026-01-01 00:00:00\+00, not to .*: nothing was changed/,
    );
    const recovering = await copyServer(server.url, { recovers: true });
    expect(await refusalOf(recovering)).to.match(/ is still recovering: nothing was changed/);
  });

  it('no output, record of an action, or origin of a database has the password of the recovered server', async () => {
    const stored = await server.control('select * from operator_actions');
    const origins = await server.control('select * from tenant_databases');
    const log = await server.log();
    expect(stored.length).to.be.greaterThan(5);
    for (const secret of [passwordOf(recovered.url), 'wrong-and-secret']) {
      expect(secret).not.to.equal('');
      expect(JSON.stringify(printed)).not.to.include(secret);
      expect(JSON.stringify([stored, origins, log])).not.to.include(secret);
    }
  });
});
