import { readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { Client } from '../support/client.ts';
import { type RunningScript, runScript, startScript } from '../support/command-line.ts';
import { createDedicatedServer, type DedicatedServer } from '../support/dedicated-server.ts';
import { eventually } from '../support/eventually.ts';
import { compareWithCalm } from '../support/others-times.ts';
import { makeServerFolder } from '../support/server-folder.ts';
import { sendSteadily } from '../support/steady-load.ts';

const databases = 200;
const maxRestoreMs = 60_000;
const kills = 6;
const calmMs = 10_000;
const rounds = 5;
/** One after the other: one takes too little time to say how others are served meanwhile. */
const restoresPerRound = 8;

describe('restore of one of 200 tenants to a moment', () => {
  let server: DedicatedServer;
  let folder: string;
  let environment: Record<string, string>;
  let database: string;
  let moment: string;
  let service: RunningScript;
  /** A user of a tenant that is served meanwhile. */
  let other: Client;

  before(async function () {
    this.timeout(600_000);
    server = await createDedicatedServer(['full_page_writes=on']);
    folder = await makeServerFolder('base');
    environment = { ...server.environment, BASE_BACKUP_DIR: folder };
    const { tenant } = await server.provision('acme');
    database = tenant.databaseName;
    other = await serveOther();
    // Databases of other tenants, as far as the server can tell.
    for (let count = 1; count < databases; count++)
      await server.sql(`create database other_${count} template "${database}" strategy file_copy`);
    await server.sql(`insert into currencies (code, name) values ('EUR', 'Euro')`, database);
    const startedAt = performance.now();
    const { code, stderr } = await runScript('scripts/tenant.ts', ['backup', 'base', '--json'], environment);
    expect(code, stderr).to.equal(0);
    console.log(`      base backup of ${databases} databases: ${Math.round(performance.now() - startedAt)} ms`);
    await writeEverywhere();
    moment =
      (
        await server.sql<{ at: string }>(
          `select to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as at`,
        )
      )[0]?.at ?? '';
    await server.sql(`update currencies set name = 'Later'`, database);
    await writeEverywhere();
  });
  after(async () => {
    service.process.kill('SIGKILL');
    await service.ended;
    await server.close();
    await rm(folder, { recursive: true, force: true });
  });

  async function serveOther(): Promise<Client> {
    const { tenant, logins } = await server.provision('globex');
    await server.sql(`insert into currencies (code, name) values ('EUR', 'Euro')`, tenant.databaseName);
    service = startScript('src/main.ts', [], {
      ...environment,
      PORT: '0',
      MANAGEMENT_PORT: '0',
      RATE_LIMIT_GLOBAL: '1000000/60s',
    });
    const port = await eventually(() => /"port":(\d+)/.exec(service.output.stdout)?.[1], 60_000);
    const { body } = await new Client(`http://127.0.0.1:${port}`).post('/api/v1/auth/login', logins[0], {
      'X-Tenant': tenant.guid,
    });
    return new Client(`http://127.0.0.1:${port}`, body);
  }

  /** Reads a record of the other tenant from its database 50 times a second, until `until` resolves. */
  const readOther = (until: Promise<unknown>) =>
    sendSteadily(50, until, async () => {
      const { status } = await other.get('/api/v1/Currency', { 'Cache-Control': 'no-cache' });
      return status === 200 ? status : `${status}`;
    });

  /** Changes pages, and makes new files, in databases whose files the recovery does not have. */
  async function writeEverywhere(): Promise<void> {
    for (let count = 1; count < databases; count += 10) {
      await server.sql(
        `insert into currencies (code, name) select 'C' || n, n from generate_series(1, 200) n on conflict do nothing;
         update currencies set symbol = 'x';
         insert into audit_log (action, resource, record_key, database_user)
           select 'create', 'Currency', n, 'drill' from generate_series(1, 500) n;
         delete from currencies`,
        `other_${count}`,
      );
      await server.sql('vacuum full currencies', `other_${count}`);
    }
  }

  const restoreArgs = (): string[] => ['restore', 'acme', '--at', moment, '--json'];
  const scratchFolders = async (): Promise<string[]> => {
    const scratch = (await readdir(join(folder, 'default'))).filter(name => name.startsWith('scratch-'));
    const sockets = (await readdir(tmpdir())).filter(name => /^backoffice-[A-Za-z0-9]{6}$/.test(name));
    return [...scratch, ...sockets];
  };

  it('takes at most 60 s, and is exact, while another tenant is served', async function () {
    this.timeout(600_000);
    const restored: string[] = [];
    const restoreSome = async (): Promise<number[]> => {
      const times: number[] = [];
      for (let count = 0; count < restoresPerRound; count++) {
        const startedAt = performance.now();
        const { code, stdout, stderr } = await runScript('scripts/tenant.ts', restoreArgs(), environment);
        expect(code, stderr).to.equal(0);
        restored.push(JSON.parse(stdout).database);
        times.push(Math.round(performance.now() - startedAt));
      }
      console.log(`      restored in ${times.join(', ')} ms`);
      return times;
    };
    const { results, failed } = await compareWithCalm({ calmMs, rounds, load: readOther, work: restoreSome });
    const times = results.flat();
    expect(failed).to.equal(0);
    expect(Math.max(...times)).to.be.below(maxRestoreMs);
    for (const each of restored)
      expect(await server.sql('select name from currencies', each)).to.deep.equal([{ name: 'Euro' }]);
  });

  it('ends the scratch server and removes its files when the command is killed, and can be run again', async function () {
    this.timeout(600_000);
    for (let kill = 1; kill <= kills; kill++) {
      const { process: child, ended } = startScript('scripts/tenant.ts', restoreArgs(), environment);
      await sleep(kill * 700);
      child.kill('SIGKILL');
      await ended;
      // What was copied before the scratch server began is left for the next run.
      await eventually(async () => (await scratchFolders()).length <= 1, 20_000);
    }
    const { code, stdout, stderr } = await runScript('scripts/tenant.ts', restoreArgs(), environment);
    expect(code, stderr).to.equal(0);
    expect(await scratchFolders()).to.deep.equal([]);
    const again = JSON.parse(stdout).database;
    expect(await server.sql('select name from currencies', again)).to.deep.equal([{ name: 'Euro' }]);
  });
});
