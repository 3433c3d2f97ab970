import { rm } from 'node:fs/promises';
import { expect } from 'chai';
import { databaseUrl } from '../../src/control/server-urls.ts';
import { withConnection } from '../../src/postgres/connection.ts';
import { createDedicatedServer, type DedicatedServer } from '../support/dedicated-server.ts';
import { type OwnServer, startOwnServer } from '../support/own-server.ts';
import { runCommand } from '../support/run-command.ts';
import { makeServerFolder } from '../support/server-folder.ts';
import { quickSettings } from '../support/test-server.ts';

type Environment = Record<string, string>;

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
} as const;
type Command = keyof typeof commands | 'second installation';
const timers: Command[] = ['backup run', 'backup drill', 'retention apply'];
/** The jobs of the Compose file, which run at each start. */
const jobs: Command[] = ['control migrate', 'migrate --all'];

const orders: readonly (readonly Command[])[] = [
  [],
  ['control migrate'],
  [...jobs, ...timers],
  ['control migrate without the target', ...timers],
  ['control migrate without the target', 'backup init', 'backup run', 'backup prune'],
  ['doctor --fix', 'control migrate', 'doctor --fix'],
  ['second installation', 'backup run'],
  ['control migrate without the target', 'second installation', 'doctor --fix', 'backup run'],
  [...jobs, ...jobs, 'backup verify', 'backup prune', 'control migrate without the target', ...jobs, ...timers],
  [...timers, 'control migrate without the target', 'migrate --all', 'doctor --fix', 'second installation', ...timers],
];

describe('drill: loss of everything, and other commands before the restore', () => {
  for (const [number, order] of orders.entries())
    it(`order ${number + 1} brings everything back: ${order.join(', ') || 'nothing else'}`, async () => {
      const archives = await makeServerFolder('archives');
      const lost = await createDedicatedServer();
      let machine: OwnServer | undefined;
      let second: DedicatedServer | undefined;
      try {
        for (const slug of ['acme', 'globex']) {
          const { tenant } = await lost.provision(slug);
          await lost.sql(`insert into currencies (code, name) values ('EUR', '${slug}')`, tenant.databaseName);
        }
        const before: Environment = { ...lost.environment, BACKUP_TARGET: archives };
        await succeed(before, 'tenant', 'backup', 'init');
        await succeed(before, 'tenant', 'backup', 'run', '--all');
        await lost.close(); // deletes its data folder

        machine = await startOwnServer('new', quickSettings);
        const url = databaseUrl(machine.url, 'office');
        const settings: Environment = { ...before, DATABASE_URL: url };
        for (const command of order)
          if (command === 'second installation') {
            second ??= await createDedicatedServer();
            await second.provision('initech');
            const other = { ...second.environment, BACKUP_TARGET: archives };
            for (const args of [['init'], ['run', '--all'], ['prune']])
              expect((await run(other, 'tenant', 'backup', ...args)).code, args.join(' ')).to.equal(1);
            await second.close();
          } else {
            const { BACKUP_TARGET: _, ...withoutTarget } = settings;
            const environment = command.endsWith('without the target') ? withoutTarget : settings;
            const [script, ...args] = commands[command];
            await run(environment, script, ...args);
          }
        await succeed(settings, 'control', 'restore', '--all');
        const tenants = await withConnection(url, async client => {
          const { rows } = await client.query<{ slug: string; status: string; name: string }>(
            'select slug, status, database_name as name from tenants order by slug',
          );
          return rows;
        });
        expect(tenants.map(({ slug, status }) => `${slug} ${status}`)).to.deep.equal(['acme active', 'globex active']);
        for (const { slug, name } of tenants)
          await withConnection(databaseUrl(url, name), async client =>
            expect((await client.query('select name from currencies')).rows).to.deep.equal([{ name: slug }]),
          );
        for (const args of [['run', '--all'], ['verify'], ['drill', '--count', '2']])
          await succeed(settings, 'tenant', 'backup', ...args);
      } finally {
        await machine?.close();
        await rm(archives, { recursive: true, force: true });
      }
    });

  const run = (environment: Environment, script: string, ...args: string[]) =>
    runCommand(`scripts/${script}.ts`, args, environment);

  async function succeed(environment: Environment, script: string, ...args: string[]): Promise<void> {
    const { code, stdout, stderr } = await run(environment, script, ...args);
    expect(code, `${args.join(' ')}: ${stderr}${stdout}`).to.equal(0);
  }
});
