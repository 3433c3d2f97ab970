import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { databaseUrl } from '../../src/control/server-urls.ts';
import { catalogue } from '../../src/operator/cli/catalogue.ts';
import { operationsOf } from '../../src/operator/command/operation.ts';
import { generatePassword } from '../../src/operator/credentials/users.ts';
import { createServiceLogin } from '../../src/operator/schema/service-login.ts';
import { backupSettings } from '../support/backup-settings.ts';
import { runScript, type ScriptResult } from '../support/command-line.ts';
import { LoadedServices } from '../support/loaded-services.ts';
import { useServerFolder } from '../support/server-folder.ts';
import { useServiceProcesses } from '../support/service-processes.ts';
import { postgresUrl } from '../support/test-server.ts';
import { TwoServers } from '../support/two-servers.ts';
import { use } from '../support/use.ts';
import { sql, type TestTenant } from '../support/world.ts';

const budget = Number(process.env.BUDGET ?? 12);
const services = 2;
const servedTenants = 6;
/** The clients of each process: enough that every connection of its share is in use. */
const clientsPerProcess = 4;
const maxMs = 120_000;

/** A run of a command. */
interface Line {
  readonly args: readonly string[];
  /** The text that the command reads from stdin. */
  readonly input?: string;
  /** The reason that it may give, instead of doing what it is asked for. */
  readonly refusal?: RegExp;
}

/** Returns the run of a command with a tenant that no other run has. */
type LineOf = (slug: string) => Line | Promise<Line>;

/**
 * Two processes of the service under load, which have the least budget that lets one of them be
 * restarted. Each command runs alone, and then twice at once, with tenants of its own. After
 * the last one, it prints the times. `BUDGET=32` runs it with another budget.
 */
describe(`drill: commands beside processes that share a budget of ${budget} connections`, function () {
  this.timeout(900_000);
  // First, while the servers run.
  after(async () => {
    console.table(times);
    console.log({
      peaks: loaded.peaks,
      aboveMs: loaded.aboveMs,
      responses: Object.fromEntries(loaded.counts),
    });
    await loaded.close();
    await rm(folder, { recursive: true, force: true });
  });
  const archives = useServerFolder('archives');
  const servers = use(async () =>
    TwoServers.start({ CONNECTION_BUDGET: String(budget), ...(await backupSettings(archives)) }),
  );
  const processes = useServiceProcesses();
  const times: { command: string; alone: number; 'two at once': string }[] = [];
  let loaded: LoadedServices;
  let folder: string;

  before(async () => {
    const { world } = servers;
    folder = await mkdtemp(join(tmpdir(), 'backoffice-drill-'));
    const tenants: TestTenant[] = [];
    for (let n = 0; n < servedTenants; n++) {
      tenants.push(await world.provision(`served-${n}`, n % 2 ? 'second' : 'default'));
    }
    await world.service.stop();
    await servers.runWell(['backup', 'init']);

    loaded = new LoadedServices(budget, processes, tenants);
    await loaded.watch(postgresUrl());
    await loaded.watch(servers.second.url);
    const url = await createServiceLogin(world.environment.DATABASE_URL ?? '', generatePassword());
    for (let n = 0; n < services; n++) {
      await loaded.start({ ...world.environment, DATABASE_URL: url }, clientsPerProcess);
    }
  });
  const emailOf = (slug: string): string => `a@${slug}.test`;
  const otherOf = (slug: string): string => `b@${slug}.test`;

  async function json<Document>(...args: string[]): Promise<Document> {
    return JSON.parse(await servers.runWell([...args, '--json']));
  }

  async function keyOf(slug: string): Promise<string> {
    const [key = expect.fail()] = await json<{ kid: string }[]>('key', 'list', slug);
    return key.kid;
  }

  async function clientOf(slug: string): Promise<string> {
    const [client = expect.fail()] = await json<{ id: string }[]>('client', 'list', slug);
    return client.id;
  }

  async function programOf(slug: string): Promise<string> {
    const [program = expect.fail()] = await json<{ id: number }[]>('program', 'list', slug);
    return String(program.id);
  }

  async function programKeyOf(slug: string): Promise<string> {
    const [key = expect.fail()] = await json<{ id: string }[]>('program', 'key', 'list', slug);
    return key.id;
  }

  async function restoredOf(slug: string): Promise<string> {
    const restored = (await servers.databases(slug)).find(({ state }) => state !== 'current');
    return restored?.database ?? expect.fail(`${slug} has one database`);
  }

  /** Makes a webhook of a tenant. */
  async function addWebhook(slug: string): Promise<void> {
    await sql(
      { adminUrl: await servers.currentUrl(slug) },
      `insert into webhooks (url, resources, actions, payload, is_enabled, position, user_id)
       values ('https://hooks.example.com/', '{Country}', '{create}', 'thin', true, '', 1)`,
    );
  }

  const operator = { user: 'operator', password: 'secret' };
  const secondUrl = (): string => databaseUrl(servers.second.url, 'operator', operator);

  const of =
    (...more: string[]): LineOf =>
    slug => ({ args: [slug, ...more] });
  const just =
    (...args: string[]): LineOf =>
    () => ({ args });

  const another = /^Another (backup run|drill|removal of old rows) is in progress/;
  /** Doctor may have findings of this machine. */
  const anything = /(?:)/;

  /** The runs of all commands, in an order in which each finds what it needs. */
  const lines: readonly (readonly [command: string, lineOf: LineOf])[] = [
    [
      'provision',
      slug => ({
        args: [slug, '--name', slug, '--server', 'default', '--admin-email', emailOf(slug)],
      }),
    ],

    ['list', just()],
    ['show', of()],
    ['status', just()],
    ['processes', just()],
    ['usage', just()],
    ['logs', just()],

    ['user list', of()],
    ['user find', slug => ({ args: [emailOf(slug)] })],
    ['user add', slug => ({ args: [slug, otherOf(slug)] })],
    ['user role', slug => ({ args: [slug, otherOf(slug), 'Administrator'] })],
    ['user disable', slug => ({ args: [slug, otherOf(slug), '--yes'] })],
    ['user enable', slug => ({ args: [slug, otherOf(slug)] })],
    ['user password', slug => ({ args: [slug, otherOf(slug), '--yes'] })],
    ['session list', of()],
    ['session revoke', slug => ({ args: [slug, '--user', otherOf(slug), '--yes'] })],
    ['client add', slug => ({ args: [slug, otherOf(slug), '--name', 'till'] })],
    ['client list', of()],
    ['client revoke', async slug => ({ args: [slug, await clientOf(slug), '--yes'] })],
    ['user remove', slug => ({ args: [slug, otherOf(slug), '--yes'] })],
    ['key list', of()],
    ['program add', of('--name', 'till', '--role', 'Member', '--scope', 'All')],
    ['program list', of()],
    ['program key add', async slug => ({ args: [slug, await programOf(slug)] })],
    ['program key list', of()],
    ['program key find', just('sbk_00000000')],
    ['program disable', async slug => ({ args: [slug, await programOf(slug), '--yes'] })],
    ['program enable', async slug => ({ args: [slug, await programOf(slug)] })],
    ['program key revoke', async slug => ({ args: [slug, await programKeyOf(slug), '--yes'] })],
    ['key rotate', of()],
    ['key disable', async slug => ({ args: [slug, await keyOf(slug), '--yes'] })],

    ['edit', of('--name', 'Renamed')],
    ['isolate', of('--yes')],
    ['isolate', of('--off')],
    ['packs apply', of()],
    ['export', slug => ({ args: [slug, '--to', join(folder, `${slug}.tar`)] })],
    ['refresh', of()],
    ['webhooks', of()],
    [
      'webhooks disable',
      async slug => {
        await addWebhook(slug);
        return { args: [slug, '1', '--yes'] };
      },
    ],
    ['suspend', of('--yes')],
    ['resume', of()],

    ['backup run', slug => ({ args: [slug], refusal: another })],
    ['backup run', () => ({ args: ['--all'], refusal: another })],
    ['backup list', of()],
    ['backup verify', of()],
    ['backup drill', () => ({ args: ['--count', '2'], refusal: another })],
    ['backup prune', () => ({ args: [], refusal: another })],
    ['backup recognise', slug => ({ args: [slug], refusal: another })],
    ['retention', of('--activity', '2y')],
    ['retention apply', slug => ({ args: [slug, '--yes'], refusal: another })],
    ['retention log', of()],

    ['restore', of('--archive', 'latest')],
    ['restore diff', of()],
    ['restore swap', of('--yes')],
    ['restore back', of('--yes')],
    ['databases', just()],
    ['databases prune', of()],
    ['databases drop', async slug => ({ args: [slug, await restoredOf(slug), '--yes'] })],
    ['clone', slug => ({ args: [slug, `${slug}-copy`] })],

    ['move', of('--to', 'second', '--pause', '60')],
    ['move', of('--back', '--pause', '60')],
    ['move', of('--to', 'second', '--pause', '60')],
    ['move settle', of('--yes')],
    ['server list', just()],
    ['server set', just('second', '--capacity', '500')],
    ['server add', () => ({ args: ['second'], input: secondUrl() })],

    ['migrate', just('--all')],
    // The first migration of the tenant stays.
    ['rollback', slug => ({ args: [slug, '--yes'], refusal: /was not rolled back/ })],
    ['runs list', just()],
    ['runs show', just()],
    ['runs watch', just('--json')],

    ['doctor', () => ({ args: ['--json'], refusal: anything })],
    ['doctor', () => ({ args: ['--control', '--json'], refusal: anything })],
    ['completion', just('bash')],

    ['delete', of('--yes')],
    ['undelete', of()],
    ['delete', of('--yes')],
    ['purge', of('--yes')],
    ['control migrate', just()],
  ];

  /** Commands that run here with `--dry-run` only, or not at all. */
  const others = {
    console: 'runs until Ctrl-C',
    'backup keygen': 'opens no connection',
    'backup init': 'once for an installation: before all',
    'server drain': 'moves one tenant after the other, as move does',
    'server remove': 'needs a server without tenants',
    'control service-login': 'cuts the services off, and so ends the load',
    'control reseal': 'needs two master keys',
    'control restore': 'needs a control database that is lost',
    'control after-restore': 'ends the sessions of the load',
  };

  it('each command is named', async () => {
    const all = (await Promise.all(catalogue.map(operationsOf))).flat().map(({ name }) => name);
    const named = new Set([...lines.map(([command]) => command), ...Object.keys(others)]);

    expect([...named].sort()).to.deep.equal(all.sort());
  });

  /**
   * Runs a command.
   * @returns for how long it ran, in ms
   */
  async function runWell(command: string, { args, input, refusal }: Line): Promise<number> {
    const startedAt = performance.now();
    const words = [...command.split(' '), ...args];
    const { code, stdout, stderr } = await Promise.race([
      runScript('scripts/backoffice.ts', words, servers.world.environment, input),
      new Promise<ScriptResult>((_, reject) =>
        setTimeout(reject, maxMs, new Error(`${words} does not end`)).unref(),
      ),
    ]);

    const isRefused = code === 1 && refusal?.test(stderr);
    expect(isRefused ? 0 : code, `${words.join(' ')}: ${stderr}${stdout}`).to.equal(0);
    return Math.round(performance.now() - startedAt);
  }

  for (const [command, lineOf] of lines) {
    it(`${command} ends, alone and two at once`, async () => {
      const [line, ...both] = [
        await lineOf('alone'),
        await lineOf('first'),
        await lineOf('second'),
      ];

      const alone = await runWell(command, line);
      const together = await Promise.all(both.map(each => runWell(command, each)));

      times.push({
        command: [command, ...line.args].join(' '),
        alone,
        'two at once': together.join(', '),
      });
      loaded.expectWithinBudget();
    });
  }
});
