import { cp, readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { expect } from 'chai';
import pg from 'pg';
import { readConfig } from '../../../src/config/config.ts';
import { controlArchiveId } from '../../../src/operator/archives/archive-name.ts';
import { createKeyring } from '../../../src/operator/archives/data-keys.ts';
import { readArchive } from '../../../src/operator/archives/format/archive-file.ts';
import { readTargetKeys } from '../../../src/operator/archives/target-keys.ts';
import { openTarget } from '../../../src/operator/archives/targets/open-target.ts';
import { purgeTenant } from '../../../src/operator/lifecycle/purge-tenant.ts';
import { changeState } from '../../../src/operator/tenants/transitions.ts';
import { createDedicatedServer, type DedicatedServer } from '../../support/dedicated-server.ts';
import { eventually } from '../../support/eventually.ts';
import { runCommand } from '../../support/run-command.ts';
import { makeServerFolder } from '../../support/server-folder.ts';
import { backUp, succeed } from '../../support/succeed.ts';

describe('the key of the archives of the control database', () => {
  let server: DedicatedServer;
  let folder: string;
  let environment: Record<string, string>;

  const run = (...args: string[]) => succeed(environment, 'tenant', args);
  /** Runs SQL in a transaction of the control database that stays open while `work` runs. */
  async function whileOpen<T>(text: string, work: () => Promise<T>): Promise<T> {
    const holder = new pg.Client(environment.DATABASE_URL);
    await holder.connect();
    await holder.query(`begin; ${text}`);
    return work().finally(() => holder.end());
  }
  /** Returns whether a statement with this text waits for a lock. */
  const isWaiting = async (text: string): Promise<boolean> => {
    const sessions = await server.sql<{ query: string }>(
      `select query from pg_stat_activity where wait_event_type = 'Lock'`,
    );
    return sessions.some(({ query }) => query.includes(text));
  };

  before(async () => {
    [server, folder] = await Promise.all([createDedicatedServer(), makeServerFolder('archives')]);
    environment = { ...server.environment, BACKUP_TARGET: folder };
    for (const slug of ['acme', 'globex', 'initech', 'umbrella']) await server.provision(slug);
    await backUp(environment);
    for (const slug of ['globex', 'initech', 'umbrella']) await changeState(server.installation, slug, 'delete');
  });
  after(async () => {
    await server.close();
    await rm(folder, { recursive: true, force: true });
  });

  it('a purge that overlaps a run leaves no readable archive of the control database with its tenant', async () => {
    const copies = await makeServerFolder('copies');
    const copyArchives = () => cp(join(folder, 'control'), copies, { recursive: true });
    await copyArchives();
    await run('purge', 'globex', '--yes'); // the next run makes a new key
    const { purging, running } = await whileOpen(
      `select from users where tenant_id = (select id from tenants where slug = 'initech') for update`,
      async () => {
        const purging = purgeTenant(server.installation, 'initech');
        await eventually(() => isWaiting('delete from tenants'));
        const running = runCommand('scripts/tenant.ts', ['backup', 'run', '--all'], environment);
        let hasEnded = false;
        void running.finally(() => (hasEnded = true));
        await eventually(async () => hasEnded || (await isWaiting('insert into backup_keys')));
        await copyArchives();
        return { purging, running };
      },
    );
    await purging;
    const overlapped = await running;
    expect(overlapped.stdout, overlapped.stdout + overlapped.stderr).to.include('(control database): archived');
    await copyArchives();
    await run('backup', 'run', '--all');
    await copyArchives();
    const keyring = createKeyring(
      await readTargetKeys(openTarget(readConfig(environment).backup)),
      server.installation.secrets,
    );
    const tenantsOf = async (file: string): Promise<number | string> =>
      readArchive(
        Readable.from([await readFile(join(copies, file))]),
        { id: controlArchiveId(`control/${file}`) ?? '', tenant: null },
        ({ key }) => keyring.find(null, key),
        async ({ manifest }) => manifest.tables.find(({ name }) => name === 'tenants')?.rows ?? 0,
      ).catch(error => error.kind);
    const found = await Promise.all((await readdir(copies)).map(tenantsOf));
    expect(found).to.have.length.greaterThan(2);
    expect([...new Set(found)], 'tenants in the archives that can be read').to.have.members(['wrong_key', 2]);
    await rm(copies, { recursive: true });
  });
});
