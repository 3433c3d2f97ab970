import { readdir, rm } from 'node:fs/promises';
import { expect } from 'chai';
import { databaseUrl } from '../../src/control/server-urls.ts';
import { withConnection } from '../../src/lib/postgres/connection.ts';
import { backupSettings } from '../support/backup-settings.ts';
import { Client } from '../support/client.ts';
import { createDedicatedServer, type DedicatedServer } from '../support/dedicated-server.ts';
import { largeTenantSql } from '../support/large-tenant.ts';
import { type OwnServer, startOwnServer } from '../support/own-server.ts';
import { runCommand } from '../support/run-command.ts';
import { makeServerFolder } from '../support/server-folder.ts';
import { useServiceProcesses } from '../support/service-processes.ts';
import { backUp, type Script, succeed } from '../support/succeed.ts';
import { quickSettings } from '../support/test-server.ts';

const tenants = Number(process.env.TENANTS ?? 50);

/** Commands that people, timers and jobs run after a loss, before somebody restores. */
const commands = {
  'control migrate': ['control', 'migrate'],
  'control migrate without the target': ['control', 'migrate'],
  'backup run': ['tenant', 'backup', 'run', '--all'],
  'backup init': ['tenant', 'backup', 'init'],
  'backup prune': ['tenant', 'backup', 'prune'],
  'backup drill': ['tenant', 'backup', 'drill', '--count', '5'],
  'backup verify': ['tenant', 'backup', 'verify'],
  'doctor --fix': ['tenant', 'doctor', '--fix'],
  'migrate --all': ['tenant', 'migrate', '--all'],
  'retention apply': ['tenant', 'retention', 'apply'],
} as const satisfies Record<string, readonly [Script, ...string[]]>;
type Command = keyof typeof commands | 'second installation';
const timers: Command[] = ['backup run', 'backup drill', 'retention apply'];
/** The jobs of the Compose file, which run at each start. */
const jobs: Command[] = ['control migrate', 'migrate --all'];

const orders: readonly (readonly Command[])[] = [
  ['control migrate'],
  [...jobs, ...timers],
  ['control migrate without the target', ...timers],
  ['control migrate without the target', 'backup init', 'backup run', 'backup prune'],
  ['doctor --fix', 'control migrate', 'doctor --fix'],
  ['second installation', 'backup run'],
  ['control migrate without the target', 'second installation', 'doctor --fix', 'backup run'],
  [
    ...jobs,
    ...jobs,
    'backup verify',
    'backup prune',
    'control migrate without the target',
    ...jobs,
    ...timers,
  ],
  [
    ...timers,
    'control migrate without the target',
    'migrate --all',
    'doctor --fix',
    'second installation',
    ...timers,
  ],
];

describe('drill: loss of a whole machine', function () {
  this.timeout(600_000);
  const processes = useServiceProcesses();
  let archives: string;
  let machine: OwnServer | undefined;
  /** Settings of commands on the new machine. */
  let environment: Record<string, string>;
  /** The id of the installation that was lost. */
  let installation: string;

  beforeEach(async () => {
    archives = await makeServerFolder('archives');
  });
  afterEach(async () => {
    await processes.killAll();
    await machine?.close();
    await rm(archives, { recursive: true, force: true });
  });

  /**
   * Provisions tenants with data, archives everything, and loses it.
   * @returns the administrators of the tenants
   */
  async function loseTenants(slugs: readonly string[], dataOf: (slug: string) => string) {
    const lost = await createDedicatedServer();
    const admins: { guid: string; email: string; password: string }[] = [];
    for (const slug of slugs) {
      const { tenant, logins } = await lost.provision(slug);
      admins.push({ email: '', password: '', ...logins[0], guid: tenant.guid });
      await lost.sql(dataOf(slug), tenant.databaseName);
    }
    environment = { ...lost.environment, ...(await backupSettings(archives)) };
    await backUp(environment);
    installation = (await readdir(archives)).find(name => /^[0-9a-f-]{36}$/.test(name)) ?? '';
    await lost.close(); // deletes its data folder
    return admins;
  }

  async function startMachine(): Promise<void> {
    machine = await startOwnServer('new', quickSettings);
    environment.DATABASE_URL = databaseUrl(machine.url, 'office');
  }

  const query = async <Row extends object>(text: string): Promise<Row[]> =>
    withConnection(
      environment.DATABASE_URL ?? '',
      async client => (await client.query(text)).rows as Row[],
    );

  it('all tenants are served again from the archives and the master key, and the time of that is printed', async () => {
    const slugs = Array.from({ length: tenants }, (_, number) => `tenant-${number}`);
    // One has about 10 MB of rows and indexes.
    const large = largeTenantSql(3_800).join(';\n');
    const small = `insert into currencies (code, name) values ('EUR', 'Euro')`;
    const admins = await loseTenants(slugs, slug => (slug === 'tenant-0' ? large : small));

    const startedAt = performance.now();
    const passed = (): number => Math.round(performance.now() - startedAt) / 1_000;
    await startMachine();
    const server = passed();
    await succeed(environment, 'control', ['restore', '--all', '--json']);
    const command = passed();

    const { url } = await processes.start({ ...environment, RATE_LIMIT_LOGIN: '1000000/15m' });
    for (const { guid, ...credentials } of admins) {
      const login = await new Client(url).post('/api/v1/auth/login', credentials, {
        'X-Tenant': guid,
      });
      expect(login.status, JSON.stringify(login.body)).to.equal(200);

      const client = new Client(url, login.body);
      expect((await client.get('/api/v1/Currency?limit=1')).body).to.have.length(1);
      expect(
        (await client.post('/api/v1/Currency', { Code: 'NOK', Name: 'Krone' })).status,
      ).to.equal(201);
    }

    console.log({
      tenants,
      'server started, s': server,
      'databases restored, s': command,
      'every tenant logged in, read and wrote, s': passed(),
    });

    const again = await runCommand(
      'scripts/control.ts',
      ['restore', '--all', '--json'],
      environment,
    );
    expect(again.stderr).to.include(`The control database has ${tenants} tenants`);
    await succeed(environment, 'tenant', ['doctor', '--json']);
  });

  for (const order of orders) {
    it(`everything comes back also after these commands: ${order.join(', ')}`, async () => {
      const slugs = ['acme', 'globex'];
      await loseTenants(
        slugs,
        slug => `insert into currencies (code, name) values ('EUR', '${slug}')`,
      );
      await startMachine();

      let second: DedicatedServer | undefined;
      for (const command of order) {
        if (command === 'second installation') {
          second ??= await createDedicatedServer();
          await second.provision('initech');

          const other = { ...second.environment, ...(await backupSettings(archives)) };
          for (const args of [['init'], ['run', '--all'], ['prune']]) {
            await succeed(other, 'tenant', ['backup', ...args]);
          }

          await second.close();
        } else {
          const { BACKUP_TARGET: _, ...withoutTarget } = environment;
          const [script, ...args] = commands[command];
          const settings = command.endsWith('without the target') ? withoutTarget : environment;
          await runCommand(`scripts/${script}.ts`, args, settings);
        }
      }

      const restore = ['restore', '--all'];
      if (second) {
        const refused = await runCommand('scripts/control.ts', restore, environment);
        expect(refused.stderr).to.include(`--installation ${installation} (1 archive`);
        restore.push('--installation', installation);
      }
      await succeed(environment, 'control', restore);

      const found = await query<{ slug: string; status: string; database: string }>(
        'select slug, status, database_name as database from tenants order by slug',
      );
      expect(found.map(({ slug, status }) => [slug, status])).to.deep.equal(
        slugs.map(slug => [slug, 'active']),
      );

      for (const { slug, database } of found) {
        await withConnection(databaseUrl(machine?.url ?? '', database), async client =>
          expect((await client.query('select name from currencies')).rows).to.deep.equal([
            { name: slug },
          ]),
        );
      }

      for (const args of [['run', '--all'], ['verify'], ['drill', '--count', '2']]) {
        await succeed(environment, 'tenant', ['backup', ...args]);
      }
    });
  }
});
