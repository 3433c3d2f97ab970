import { rm } from 'node:fs/promises';
import { expect } from 'chai';
import { databaseUrl } from '../../src/control/server-urls.ts';
import { withConnection } from '../../src/postgres/connection.ts';
import { Client } from '../support/client.ts';
import { runScript } from '../support/command-line.ts';
import { createDedicatedServer } from '../support/dedicated-server.ts';
import { largeTenantSql } from '../support/large-tenant.ts';
import { type OwnServer, startOwnServer } from '../support/own-server.ts';
import { runCommand } from '../support/run-command.ts';
import { makeServerFolder } from '../support/server-folder.ts';
import { createServiceProcesses } from '../support/service-processes.ts';
import { quickSettings } from '../support/test-server.ts';

const tenants = Number(process.env.TENANTS ?? 50);
/** One of them has about 10 MB of rows and indexes. */
const rows = Number(process.env.ROWS ?? 3_800);

describe('drill: loss of a whole machine', () => {
  let archives: string;
  let machine: OwnServer | undefined;
  const processes = createServiceProcesses();

  after(async () => {
    await processes.killAll();
    await machine?.close();
    await rm(archives, { recursive: true, force: true });
  });

  it('all tenants are served again from the archives and the master key, and the time of that is printed', async function () {
    this.timeout(600_000);
    archives = await makeServerFolder('archives');
    const lost = await createDedicatedServer();
    const logins: { guid: string; email: string; password: string }[] = [];
    for (let number = 0; number < tenants; number++) {
      const { tenant, logins: found } = await lost.provision(`tenant-${number}`);
      logins.push({ email: '', password: '', ...found[0], guid: tenant.guid });
      const fill = number === 0 ? largeTenantSql(rows) : [`insert into currencies (code, name) values ('EUR', 'Euro')`];
      await lost.sql(fill.join(';\n'), tenant.databaseName);
    }
    const { MASTER_KEY = '' } = lost.environment;
    const settled = {
      ...lost.environment,
      BACKUP_TARGET: archives,
    };
    await runCommand('scripts/tenant.ts', ['backup', 'init'], settled);
    const backup = await runCommand('scripts/tenant.ts', ['backup', 'run', '--all'], settled);
    expect(backup.code, backup.stderr).to.equal(0);
    await lost.close(); // deletes its data folder

    const startedAt = performance.now();
    const passed = (): number => Math.round(performance.now() - startedAt) / 1_000;
    machine = await startOwnServer('new', quickSettings);
    const settings = { DATABASE_URL: databaseUrl(machine.url, 'office'), MASTER_KEY, BACKUP_TARGET: archives };
    const server = passed();
    const restored = await runScript('scripts/control.ts', ['restore', '--all', '--json'], settings);
    expect(restored.code, restored.stderr + restored.stdout).to.equal(0);
    const command = passed();
    // The restored archive has its own entry as unfinished; the next backup run would remove the file.
    const ledger = await withConnection(settings.DATABASE_URL, client =>
      client.query('select state, rows > 0 and bytes > 0 as filled, count(*)::int from archives group by 1, 2'),
    );
    expect(ledger.rows).to.deep.equal([{ state: 'complete', filled: true, count: tenants + 1 }]);
    const { url } = await processes.start({ ...settings, RATE_LIMIT_LOGIN: '1000000/15m' });
    const anonymous = new Client(url);
    for (const { guid, email, password } of logins) {
      const login = await anonymous.post('/api/v1/auth/login', { email, password }, { 'X-Tenant': guid });
      expect(login.status, JSON.stringify(login.body)).to.equal(200);
      const client = new Client(anonymous.url, login.body);
      expect((await client.get('/api/v1/Currency?limit=1')).body).to.have.length(1);
      expect((await client.post('/api/v1/Currency', { Code: 'NOK', Name: 'Krone' })).status).to.equal(201);
    }
    console.log({
      tenants,
      'server started, s': server,
      'databases restored, s': command,
      'every tenant logged in, read and wrote, s': passed(),
    });
    const again = await runCommand('scripts/control.ts', ['restore', '--all', '--json'], settings);
    expect(again.stderr).to.include(`The control database has ${tenants} tenants`);
    const doctor = await runCommand('scripts/tenant.ts', ['doctor', '--json'], settings);
    expect(doctor.code, doctor.stdout).to.equal(0);
  });
});
