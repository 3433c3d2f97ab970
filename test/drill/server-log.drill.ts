import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { withConnection } from '../../src/lib/postgres/connection.ts';
import { catalogue } from '../../src/operator/cli/catalogue.ts';
import { operationsOf } from '../../src/operator/command/operation.ts';
import { startReceiver } from '../sales/webhooks/receiver.ts';
import { backupSettings } from '../support/backup-settings.ts';
import { Client } from '../support/client.ts';
import { type RunningScript, runScript, startScript } from '../support/command-line.ts';
import { eventually } from '../support/eventually.ts';
import { createPlainServer, type PlainServer } from '../support/plain-server.ts';
import { useServerFolder } from '../support/server-folder.ts';
import { use } from '../support/use.ts';

/** The lines of the log that alarm the owner of a server. */
const alarming = ['WARNING', 'ERROR', 'FATAL', 'PANIC'];

/** Lines that ordinary work causes, each with the reason why it cannot be otherwise. */
const allowed: readonly (readonly [line: RegExp, reason: string])[] = [
  [
    /^FATAL: {2}database "backoffice" does not exist/,
    'the first control migrate looks for its database by connecting to it, because its login may have rights on no other one',
  ],
  [
    /^FATAL: {2}database "backoffice_tenant_\d+_[0-9a-f]{12}" does not exist/,
    'restore --lost, which runs once in this drill, looks by connecting whether the database is lost',
  ],
  [
    /^FATAL: {2}terminating connection due to administrator command/,
    'a drop, a move or a purge ends the sessions of a tenant: PostgreSQL logs each session that it ends',
  ],
];

/** An entry of the log, with the statement that has caused it. */
interface Entry {
  readonly text: string;
  readonly statement: string | undefined;
}

/** The settings of a server whose log says who has caused each line. */
const logSettings = [
  'log_line_prefix=~%a~%u@%d~',
  'archive_command=true', // else PostgreSQL warns each minute
  'max_connections=120',
];

/** Returns the entries of a log that alarm, without those that are allowed. */
function alarmsIn(log: string): Entry[] {
  const lines = log
    .split(/^~/m)
    .slice(1)
    .map(line => {
      const [application = '', session = '', ...rest] = line.trimEnd().split('~');
      return { source: `${application} ${session}`, text: rest.join('~') };
    });

  return lines.flatMap(({ source, text }, n) => {
    const [severity = ''] = /^[A-Z]+(?=: )/.exec(text) ?? [];
    if (!alarming.includes(severity) || allowed.some(([line]) => line.test(text))) return [];

    // Details, hints and the statement follow, each in a line of the same session.
    const after = lines.slice(n + 1);
    const end = after.findIndex(
      line => line.source === source && /^(LOG|WARNING|ERROR|FATAL|PANIC):/.test(line.text),
    );
    const statement = after
      .slice(0, end < 0 ? undefined : end)
      .find(line => line.source === source && line.text.startsWith('STATEMENT:'))?.text;
    return [{ text: `${source}: ${text}`, statement }];
  });
}

/** Reads the logs of servers, each line once. */
class Logs {
  readonly #servers: readonly PlainServer[];
  readonly #read: number[];

  constructor(servers: readonly PlainServer[]) {
    this.#servers = servers;
    this.#read = servers.map(() => 0);
  }

  /** Returns the alarms since the last call. */
  async next(): Promise<Entry[]> {
    const alarms: Entry[] = [];
    for (const [n, server] of this.#servers.entries()) {
      const log = await server.log();
      alarms.push(...alarmsIn(log.slice(this.#read[n])));
      this.#read[n] = log.length;
    }
    return alarms;
  }
}

/** What `provision` says of a new tenant. */
interface Provisioned {
  readonly guid: string;
  /** The login of its administrator. */
  readonly admin: object;
}

/** A run of a command, or what somebody does between two of them. */
interface Step {
  readonly name: string;
  readonly command: string | undefined;
  run(): Promise<unknown>;
}

for (const [login, attributes] of [
  ['a superuser', 'superuser'],
  ['a login without superuser rights', 'createdb createrole'],
] as const) {
  describe(`drill: the log of servers on which the commands log in as ${login}`, function () {
    this.timeout(900_000);
    // First, while the servers run.
    after(async () => {
      service?.process.kill('SIGTERM');
      await service?.ended;
      if (folder) await rm(folder, { recursive: true, force: true });
    });
    const archives = useServerFolder('archives');
    const first = use(() => createPlainServer(attributes, logSettings));
    const second = use(() => createPlainServer(attributes, logSettings));
    const receiver = use(startReceiver);
    let logs: Logs;
    let folder: string;
    let environment: Record<string, string>;
    let service: RunningScript | undefined;
    let acme: Provisioned;
    let admin: Client;

    before(async () => {
      folder = await mkdtemp(join(tmpdir(), 'backoffice-drill-'));
      environment = {
        DATABASE_URL: first.url('backoffice'),
        MASTER_KEY: randomBytes(32).toString('base64'),
        ...(await backupSettings(archives)),
      };

      for (const server of [first, second]) {
        await server.sql('create role shop login');
        await server.sql('create database shop owner shop');
        await server.sql('revoke connect on database shop from public');
        await server.sql('create database statistics');
        await withConnection(server.superuserUrl('statistics'), client =>
          client.query('create table measures as select generate_series(1, 10) as value'),
        );
      }
      logs = new Logs([first, second]);
      await logs.next();
    });

    async function run(words: readonly string[], input = ''): Promise<string> {
      const { code, stdout, stderr } = await runScript(
        'scripts/backoffice.ts',
        [...words],
        environment,
        input,
      );
      expect(code, `${words.join(' ')}: ${stderr}${stdout}`).to.equal(0);

      return stdout;
    }

    async function json<Document>(...words: string[]): Promise<Document> {
      return JSON.parse(await run([...words, '--json']));
    }

    const databasesOf = (slug: string): Promise<{ database: string; state: string }[]> =>
      json('databases', slug);
    const databaseOf = async (slug: string, state: string): Promise<string> =>
      (await databasesOf(slug)).find(each => each.state === state)?.database ??
      expect.fail(`${slug} has no ${state} database`);

    /** Runs SQL as superuser in the present database of a tenant on the first server. */
    const inTenant = async (slug: string, text: string): Promise<unknown> => {
      const database = await databaseOf(slug, 'current');
      return withConnection(first.superuserUrl(database), client => client.query(text));
    };

    /** Makes the step of a command whose words are known before. */
    const command = (words: string, ...more: string[]): Step => commandOf(words, () => more);
    /** Makes the step of a command. */
    const commandOf = (
      words: string,
      more: () => readonly string[] | Promise<readonly string[]>,
      input: () => string = () => '',
    ): Step => ({
      name: words,
      command: words,
      run: async () => run([...words.split(' '), ...(await more())], input()),
    });
    /** Makes the step of something that is no command. */
    const act = (name: string, work: () => Promise<unknown>): Step => ({
      name,
      command: undefined,
      run: work,
    });

    async function startService(): Promise<void> {
      const login = (await run(['control', 'service-login', '-o', 'url', '--yes'])).trim();
      service = startScript('src/main.ts', [], {
        ...environment,
        DATABASE_URL: login,
        PORT: '0',
        MANAGEMENT_PORT: '0',
        SHUTDOWN_DELAY: '0s',
        WEBHOOK_TRUSTED_RECEIVERS: receiver.trustedBy([acme]),
      });
      const { output, process: child } = service;
      await eventually(
        () => output.stdout.includes('"event":"listening"') || child.exitCode !== null,
        120_000,
      );
      expect(child.exitCode, output.stderr + output.stdout).to.equal(null);
    }

    const provision = (slug: string): Promise<Provisioned> =>
      json('provision', slug, '--name', slug, '--admin-email', `admin@${slug}.test`);

    async function logIn({ guid, admin }: Provisioned): Promise<Client> {
      const url = `http://127.0.0.1:${/"event":"listening","port":(\d+)/.exec(service?.output.stdout ?? '')?.[1]}`;
      const session = await new Client(url).post('/api/v1/auth/login', admin, {
        'X-Tenant': guid,
      });
      return new Client(url, session.body);
    }

    async function sendRequests(): Promise<void> {
      admin = await logIn(acme);
      const hook = { Url: receiver.url('/hook'), Resources: ['EntityStatus'] };
      const made = await admin.post('/api/v1/Webhooks', hook);
      expect(made.status, JSON.stringify(made.body)).to.equal(201);
      for (const Title of ['One', 'Two', 'Three']) {
        expect((await admin.post('/api/v1/EntityStatus', { Title })).status).to.equal(201);
      }
      expect((await admin.post('/api/v1/EntityStatus', { Title: '' })).status).to.equal(400);
      expect((await admin.get('/api/v1/EntityStatus')).body).to.have.length.above(2);
      expect((await admin.get('/api/v1/Changes?after=now')).status).to.equal(200);
      await eventually(() => receiver.at('/hook').length >= 3);
    }

    const pause = ['--pause', '60'];
    const email = 'bob@acme.test';
    const steps: readonly Step[] = [
      command('control migrate'),
      act('provision', async () => {
        acme = await provision('acme');
        for (const slug of ['globex', 'initech']) await provision(slug);
      }),
      act('the service starts', startService),
      command('control migrate'),
      commandOf(
        'server add',
        () => ['second'],
        () => second.url('postgres'),
      ),
      command('server set', 'second', '--disk-gb', '100'),
      command('server set', 'default', '--disk-gb', '100'),
      command('server list'),
      act('requests', sendRequests),
      command('migrate', '--all'),
      command('status'),
      command('runs list'),
      command('runs show'),
      command('runs watch', '--json'),
      command('list'),
      command('show', 'acme'),
      command('processes'),
      command('usage'),
      command('logs'),
      command('doctor'),
      command('doctor', '--control'),

      command('user list', 'acme'),
      command('user find', email),
      command('user add', 'acme', email),
      command('user role', 'acme', email, 'Administrator'),
      command('user disable', 'acme', email, '--yes'),
      command('user enable', 'acme', email),
      command('user password', 'acme', email, '--yes'),
      command('session list', 'acme'),
      command('session revoke', 'acme', '--user', email, '--yes'),
      command('client add', 'acme', email, '--name', 'till'),
      command('client list', 'acme'),
      commandOf('client revoke', async () => {
        const [client = expect.fail()] = await json<{ id: string }[]>('client', 'list', 'acme');
        return ['acme', client.id, '--yes'];
      }),
      command('user remove', 'acme', email, '--yes'),
      command('identity-provider list', 'acme'),
      command('program add', 'acme', '--name', 'till', '--role', 'Member', '--scope', 'All'),
      command('program list', 'acme'),
      command('key list', 'acme'),
      command('key rotate', 'acme'),
      command('edit', 'acme', '--name', 'Renamed'),
      command('isolate', 'globex', '--yes'),
      command('isolate', 'globex', '--off'),
      command('packs apply', 'acme'),
      commandOf('export', () => ['acme', '--to', join(folder, 'acme.tar')]),
      command('refresh', 'acme'),
      command('webhooks', 'acme'),
      command('suspend', 'globex', '--yes'),
      command('resume', 'globex'),

      command('move', 'acme', '--to', 'second', '--dry-run'),
      command('move', 'acme', '--to', 'second', ...pause),
      command('databases', 'acme'),
      command('doctor'),
      act('requests after a move', async () => {
        expect((await admin.post('/api/v1/EntityStatus', { Title: 'Moved' })).status).to.equal(201);
      }),
      command('move', 'acme', '--back', ...pause),
      command('move', 'globex', '--to', 'second', ...pause),
      command('move settle', 'globex', '--yes'),
      command('clone', 'acme', 'acme-copy'),

      command('backup init'),
      command('backup run', '--all'),
      command('backup run', '--all'),
      command('backup list', 'acme'),
      command('backup verify'),
      command('backup drill', '--count', '5'),
      command('backup prune'),
      command('backup recognise'),
      command('restore', 'acme', '--archive', 'latest'),
      command('restore diff', 'acme'),
      command('restore swap', 'acme', '--yes'),
      command('restore back', 'acme', '--yes'),
      commandOf('databases drop', async () => ['acme', await databaseOf('acme', 'kept'), '--yes']),
      command('databases prune'),
      command('clone', 'acme', 'acme-old', '--archive', 'latest'),
      act('the database of a tenant is lost', async () => {
        const database = await databaseOf('initech', 'current');
        await first.sql(`drop database "${database}" with (force)`);
        await logs.next(); // the loss is none of ours
      }),
      command('restore', 'initech', '--lost'),

      act('a tenant has old activities', () =>
        inTenant(
          'acme',
          `insert into activities (created_at, activity_code, recorded_by, recorded_from)
           select now() - interval '3 years', 7, 1, '::1' from generate_series(1, 20)`,
        ),
      ),
      command('retention', 'acme', '--activity', '2y'),
      command('retention', '--default', '--audit', '2y'),
      command('retention apply', 'acme', '--without-archive', '--yes'),
      command('retention apply', '--all'),
      command('retention log', 'acme'),

      command('delete', 'acme-copy', '--yes'),
      command('undelete', 'acme-copy'),
      command('delete', 'acme-copy', '--yes'),
      command('purge', 'acme-copy', '--yes'),
      command('server drain', 'second', '--to', 'default', ...pause),
      command('databases prune'),
      commandOf('databases drop', async () => [
        'globex',
        await databaseOf('globex', 'kept'),
        '--yes',
      ]),
      act('the former databases on the second server are dropped', async () => {
        for (const slug of ['acme', 'initech', 'acme-old']) {
          for (const { database, state } of await databasesOf(slug)) {
            if (state === 'current' || state === 'gone') continue;
            await run(['databases', 'drop', slug, database, '--yes']);
          }
        }
      }),
      command('server remove', 'second', '--yes'),
      command('doctor'),

      act('the service ends', async () => {
        service?.process.kill('SIGTERM');
        await service?.ended;
        service = undefined;
      }),
      commandOf('control reseal', () => {
        environment.MASTER_KEY_PREVIOUS = environment.MASTER_KEY ?? '';
        environment.MASTER_KEY = randomBytes(32).toString('base64');
        return ['--yes'];
      }),
      command('control after-restore', '--yes'),
      act('the control database is lost', async () => {
        delete environment.MASTER_KEY_PREVIOUS;
        await run(['backup', 'run', '--all']);
        await first.sql('drop database backoffice with (force)');
        await logs.next(); // the loss is none of ours
      }),
      command('control restore'),
      command('doctor'),
    ];

    /** Commands that do not run here, each with the reason. */
    const others: Readonly<Record<string, string>> = {
      console: 'runs until Ctrl-C, and runs the same operations',
      completion: 'opens no connection',
      'backup keygen': 'opens no connection',
      'control service-login': 'the start of the service runs it',
      provision: 'its step is named so, too',
      rollback: 'the first migration stays: it refuses',
      'key disable': 'changes rows of the control database, as key rotate does',
      'identity-provider disable': 'changes rows of the control database, as client revoke does',
      'user factors reset': 'changes rows of the control database, as user password does',
      'webhooks disable': 'changes a row of the tenant, as requests do',
      'program disable': 'changes rows of the control database, as program add does',
      'program enable': 'changes rows of the control database, as program add does',
      'program key add': 'changes rows of the control database, as program add does',
      'program key list': 'reads rows of the control database, as program list does',
      'program key find': 'reads rows of the control database, as program list does',
      'program key revoke': 'changes rows of the control database, as client revoke does',
    };

    it('each command is named', async () => {
      const all = (await Promise.all(catalogue.map(operationsOf))).flat().map(({ name }) => name);
      const named = new Set([
        ...steps.flatMap(({ command }) => command ?? []),
        ...Object.keys(others),
      ]);

      expect([...named].sort()).to.deep.equal(all.sort());
    });

    for (const [n, { name, run }] of steps.entries()) {
      it(`${n + 1}. ${name} leaves no error and no warning in the log of a server`, async () => {
        await run();

        expect(await logs.next()).to.deep.equal([]);
      });
    }
  });
}
