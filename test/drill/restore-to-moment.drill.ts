import { cp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { createArchivedServer } from '../support/archived-server.ts';
import { backupSettings } from '../support/backup-settings.ts';
import { Client } from '../support/client.ts';
import { runScript, startScript } from '../support/command-line.ts';
import { copyServer } from '../support/copied-server.ts';
import { eventually } from '../support/eventually.ts';
import { makeServerFolder, useServerFolder } from '../support/server-folder.ts';
import { useServiceProcesses } from '../support/service-processes.ts';
import { failuresOf, sendSteadily } from '../support/steady-load.ts';
import { succeed } from '../support/succeed.ts';
import { use } from '../support/use.ts';

const maxRestoreMs = 60_000;
const kills = 6;

describe('restore of one of two tenants to a moment between two acknowledged writes', function () {
  this.timeout(600_000);
  const archives = useServerFolder('archives');
  const server = use(() => createArchivedServer(['full_page_writes=on']));
  let environment: Record<string, string>;
  const processes = useServiceProcesses();
  let acme: Client;
  /** A user of a tenant that is served meanwhile. */
  let globex: Client;
  let moment: string;
  /** A database with the data of acme at that moment. */
  let restored: string;

  before(async () => {
    environment = { ...server.environment, ...(await backupSettings(archives)) };
    const [one, other] = [await server.provision('acme'), await server.provision('globex')];
    const { url } = await processes.start({ ...environment, RATE_LIMIT_GLOBAL: '1000000/60s' });
    const logIn = async ({ tenant, logins }: typeof one): Promise<Client> => {
      const { body } = await new Client(url).post('/api/v1/auth/login', logins[0], {
        'X-Tenant': tenant.guid,
      });
      return new Client(url, body);
    };
    acme = await logIn(one);
    globex = await logIn(other);
    await add(globex, 'USD');
    await server.makeBaseBackup();
    await add(acme, 'EUR');
    moment = await server.now();
    await add(acme, 'NOK');
  });

  async function add(client: Client, code: string): Promise<void> {
    const { status } = await client.post('/api/v1/Currency', { Code: code, Name: code });
    expect(status).to.equal(201);
  }
  const codesIn = async (database: string): Promise<string[]> =>
    (await server.sql<{ code: string }>('select code from currencies order by id', database)).map(
      ({ code }) => code,
    );
  const addTo = async (slug: string, code: string): Promise<void> =>
    void (await server.sql(
      `insert into currencies (code, name) values ('${code}', '${code}')`,
      await server.databaseOf(slug),
    ));
  const tenant = async (...args: string[]) =>
    JSON.parse(await succeed(environment, 'tenant', [...args, '--json']));
  const restoreArgs = (): string[] => ['restore', 'acme', '--at', moment];
  const leftovers = (): Promise<string[]> => readdir(join(server.folder, 'scratch'));
  /**
   * Restores acme to a moment, which is refused.
   * @returns why
   */
  async function refusal(at: string, settings: Record<string, string> = {}): Promise<string> {
    const args = ['restore', 'acme', '--at', at, '--json'];
    const { code, stderr } = await runScript('scripts/tenant.ts', args, {
      ...environment,
      ...settings,
    });
    expect(code, stderr).to.equal(1);
    return JSON.parse(stderr.split('\n')[0] ?? '').error.message;
  }

  it('a restore between two writes has the first write and not the second one, while both tenants are served', async () => {
    const startedAt = performance.now();
    const restoring = runScript('scripts/tenant.ts', [...restoreArgs(), '--json'], environment);
    const served = await sendSteadily(50, restoring, async () => {
      const { status } = await globex.get('/api/v1/Currency', { 'Cache-Control': 'no-cache' });
      return status === 200 ? status : `${status}`;
    });

    const { code, stdout, stderr } = await restoring;
    const ms = Math.round(performance.now() - startedAt);
    console.log(`      restored in ${ms} ms`);

    expect(code, stderr).to.equal(0);
    expect(failuresOf(served)).to.equal(0);
    expect(ms).to.be.below(maxRestoreMs);

    ({ database: restored } = JSON.parse(stdout));
    expect(await codesIn(restored)).to.deep.equal(['EUR']);
    expect(await leftovers()).to.deep.equal([]);
  });

  it('a restore to a moment makes no tenant, and lets nobody into the restored database', async () => {
    const slugs = await server.control<{ slug: string }>('select slug from tenants order by slug');
    expect(slugs.map(({ slug }) => slug)).to.deep.equal(['acme', 'globex']);

    const [own] = await server.control<{ guid: string }>(
      `select guid from tenants where slug = 'acme'`,
    );
    const [access] = await server.sql<{ guid: string; login: boolean }>(
      'select guid, rolcanlogin as login from tenant_identity, pg_roles where rolname = current_database()',
      restored,
    );

    expect(access?.guid).to.not.equal(own?.guid);
    expect(access?.login).to.equal(false);
  });

  it('moments shows the range that can be had, and a moment before it is refused before anything is done', async () => {
    const moments = await tenant('restore', 'moments', 'acme');
    expect(moments).to.have.length(1);
    const [{ server: name, from, until }] = moments;
    expect(name).to.equal('default');
    expect(Date.parse(from)).to.be.below(Date.parse(until) + 1);

    const before = await server.control('select * from tenant_databases order by id');
    await server.control(
      `update tenants set created_at = created_at - interval '1 day' where slug = 'acme'`,
    );

    expect(await refusal(new Date(Date.parse(from) - 3_600_000).toISOString())).to.match(
      /^RECOVERY_COMMAND: The oldest base backup of default is of /,
    );
    expect(await server.control('select * from tenant_databases order by id')).to.deep.equal(
      before,
    );
    expect(await leftovers()).to.deep.equal([]);
  });

  it('a moment whose write-ahead log is not in the archive is refused, and the scratch server is removed', async () => {
    const lost = await copyWithoutNewLog(join(server.folder, 'default', 'wal'));
    expect(await refusal(await server.now(), { RECOVERY_DIR: lost })).to.match(
      /^RECOVERY_COMMAND: The archived write-ahead log ends before that moment/,
    );
    expect(await leftovers()).to.deep.equal([]);
    await rm(lost, { recursive: true });
  });

  it('a killed command leaves no recovered server and no files, and can be run again', async () => {
    for (let kill = 1; kill <= kills; kill++) {
      const { process: child, ended } = startScript(
        'scripts/tenant.ts',
        [...restoreArgs(), '--json'],
        environment,
      );

      await sleep(kill * 700);
      child.kill('SIGKILL');
      await ended;

      await eventually(async () => (await leftovers()).length === 0, 60_000);
    }

    const { code, stdout, stderr } = await runScript(
      'scripts/tenant.ts',
      [...restoreArgs(), '--json'],
      environment,
    );

    expect(code, stderr).to.equal(0);
    expect(await codesIn(JSON.parse(stdout).database)).to.deep.equal(['EUR']);
  });

  it('a tenant that was provisioned after the base backup is restored', async () => {
    await server.provision('initech');
    await addTo('initech', 'SEK');
    const moment = await server.now();
    await server.sql('delete from currencies', await server.databaseOf('initech'));
    const { database } = await tenant('restore', 'initech', '--at', moment);
    expect(await codesIn(database)).to.deep.equal(['SEK']);
  });

  it('a moment before or after a swap is recovered from the database that the tenant had then', async () => {
    const { database } = await tenant(...restoreArgs());

    const before = await server.now();
    await addTo('acme', 'DKK');
    await tenant('restore', 'swap', 'acme', '--database', database, '--yes');
    const after = await server.now();
    await tenant('restore', 'back', 'acme', '--yes');

    for (const [at, codes] of [
      [before, ['EUR', 'NOK']],
      [after, ['EUR']],
    ] as const) {
      const { database: recovered } = await tenant('restore', 'acme', '--at', at);
      expect(await codesIn(recovered)).to.deep.equal(codes);
    }
  });

  it('a lost database comes back with every transaction until the moment, and is served', async () => {
    await addTo('acme', 'JPY');
    const moment = await server.now();
    await addTo('globex', 'AUD');
    const database = await server.databaseOf('acme');
    await server.sql(`drop database "${database}" with (force)`);

    const restored = await tenant('restore', 'acme', '--lost', '--at', moment);
    expect(restored).to.include({ slug: 'acme', status: 'active', restoredFrom: moment });

    const current = await server.databaseOf('acme');
    expect(current).not.to.equal(database);
    expect(await codesIn(current)).to.include.members(['EUR', 'NOK', 'DKK', 'JPY']);
    expect(await leftovers()).to.deep.equal([]);
  });

  it('a server that was recovered to another time, or still recovers, is refused without a change, and its command ends', async () => {
    const at = await server.now();
    const databases = () =>
      server.control('select database_name, state from tenant_databases order by id');
    const before = await databases();

    const refusalOf = async (options: Parameters<typeof copyServer>[1]): Promise<string> => {
      const copy = await copyServer(server.url, options);

      const folder = await makeServerFolder('command');
      const [command, ended] = [join(folder, 'recover'), join(folder, 'ended')];
      await writeFile(command, `#!/bin/sh\necho '${copy.url}'; cat > /dev/null; touch ${ended}\n`, {
        mode: 0o755,
      });

      const message = await refusal(at, { RECOVERY_COMMAND: command });
      expect(await readFile(ended, 'utf8')).to.equal('');
      expect(await databases()).to.deep.equal(before);

      await copy.close();
      await rm(folder, { recursive: true });
      return message;
    };

    const extraSettings = ['archive_mode=off', 'recovery_target_time=2026-01-01 00:00:00+00'];
    expect(await refusalOf({ extraSettings })).to.match(
      / was recovered to 2026-01-01 00:00:00\+00, not to .*: nothing was changed/,
    );
    expect(await refusalOf({ extraSettings: ['archive_mode=off'], recovers: true })).to.match(
      / is still recovering: nothing was changed/,
    );
  });

  /** Copies the base backups with the log that they need themselves. */
  async function copyWithoutNewLog(wal: string): Promise<string> {
    const copy = await makeServerFolder('archived');
    const from = join(server.folder, 'default');
    await cp(from, join(copy, 'default'), { recursive: true });
    const bases = (await readdir(join(from, 'base'))).sort();
    const label = await readFile(join(from, 'base', bases.at(-1) ?? '', 'backup_label'), 'utf8');
    const first = /file ([0-9A-F]+)/.exec(label)?.[1] ?? '';
    for (const name of await readdir(wal)) {
      if (name > first) await rm(join(copy, 'default', 'wal', name));
    }
    return copy;
  }
});
