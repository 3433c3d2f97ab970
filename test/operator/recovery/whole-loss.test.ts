import { rm } from 'node:fs/promises';
import { expect } from 'chai';
import { pino } from 'pino';
import { createPasswords } from '../../../src/auth/passwords.ts';
import { readConfig } from '../../../src/config/config.ts';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { openInstallation } from '../../../src/installation.ts';
import { withConnection } from '../../../src/postgres/connection.ts';
import { startServer } from '../../../src/server.ts';
import { Client } from '../../support/client.ts';
import { createDedicatedServer } from '../../support/dedicated-server.ts';
import { type OwnServer, startOwnServer } from '../../support/own-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { makeServerFolder } from '../../support/server-folder.ts';
import { backUp, succeed } from '../../support/succeed.ts';
import { quickSettings } from '../../support/test-server.ts';

describe('the loss of a whole machine', () => {
  let archives: string;
  let machine: OwnServer | undefined;

  after(async () => {
    await machine?.close();
    await rm(archives, { recursive: true, force: true });
  });

  it('every tenant is back on a new machine from the archives and the master key, and its users log in', async () => {
    archives = await makeServerFolder('archives');
    const lost = await createDedicatedServer();
    const logins = new Map<string, { email: string; password: string; guid: string }>();
    for (const slug of ['acme', 'globex']) {
      const { tenant, logins: found } = await lost.provision(slug);
      logins.set(slug, { email: '', password: '', ...found[0], guid: tenant.guid });
      await lost.sql(`insert into currencies (code, name) values ('${slug}', '${slug}')`, tenant.databaseName);
    }
    const { MASTER_KEY = '' } = lost.environment;
    await backUp({ ...lost.environment, BACKUP_TARGET: archives });
    await lost.close(); // deletes its data folder

    machine = await startOwnServer('new', quickSettings);
    const settings = { DATABASE_URL: databaseUrl(machine.url, 'office'), MASTER_KEY, BACKUP_TARGET: archives };
    const lines = (await succeed(settings, 'control', ['restore', '--all', '--json'])).trim().split('\n');
    expect(JSON.parse(lines.at(-1) ?? '')).to.include({ tenants: 2, failed: 0 });
    expect(JSON.parse(lines.at(-1) ?? '').seconds).to.be.greaterThan(0);

    // The restored archive has its own entry as unfinished; the next backup run would remove the file.
    const ledger = await withConnection(settings.DATABASE_URL, client =>
      client.query('select state, rows > 0 and bytes > 0 as filled, count(*)::int from archives group by 1, 2'),
    );
    expect(ledger.rows).to.deep.equal([{ state: 'complete', filled: true, count: 3 }]);

    const config = readConfig({ ...settings, PORT: '0', MANAGEMENT_PORT: '0' });
    const installation = await openInstallation(config);
    const service = await startServer({
      config,
      installation,
      log: pino({ level: 'silent' }),
      passwords: createPasswords(),
    });
    try {
      const anonymous = new Client(`http://127.0.0.1:${service.port}`);
      for (const [slug, { guid, email, password }] of logins) {
        const login = await anonymous.post('/api/v1/auth/login', { email, password }, { 'X-Tenant': guid });
        expect(login.status, JSON.stringify(login.body)).to.equal(200);
        const client = new Client(`http://127.0.0.1:${service.port}`, login.body);
        expect((await client.get('/api/v1/Currency')).body)
          .to.have.length(1)
          .with.nested.property('[0].Code', slug);
        const created = await client.post('/api/v1/Currency', { Code: 'EUR', Name: 'Euro' });
        expect([created.status, created.body.Id]).to.deep.equal([201, 2]);
      }
    } finally {
      await service.stop();
      await installation.close();
    }
    const again = await runCommand('scripts/control.ts', ['restore', '--all', '--json'], settings);
    expect(again.stderr).to.match(/The control database has 2 tenants/);
    const doctor = await runCommand('scripts/tenant.ts', ['doctor', '--json'], settings);
    expect(doctor.code, doctor.stdout).to.equal(0);
  });
});
