import { fork } from 'node:child_process';
import { once } from 'node:events';
import { readdir, readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { catalogue } from '../../../src/operator/cli/catalogue.ts';
import {
  type Context,
  changingFields,
  type Operation,
  operationsOf,
} from '../../../src/operator/command/operation.ts';
import { withDefaults } from '../../../src/operator/command/operation-fields.ts';
import type { RunMessage } from '../../../src/operator/command/run-message.ts';
import { addSampleUser } from '../../accounts/auth/sample-users.ts';
import { insertWithoutTriggers } from '../../accounts/people/people-world.ts';
import { runCommand } from '../../support/run-command.ts';
import { controlSql, sql, useWorld } from '../../support/world.ts';

/** Tables that change by themselves while the service runs, or while a command reads. */
const volatile = ['processes', 'tenant_usage'];

describe('operations', () => {
  let all: Operation[];
  const world = useWorld();
  before(async () => {
    all = (await Promise.all(catalogue.map(operationsOf))).flat();
    await sql(
      world.acme,
      `insert into webhooks (url, resources, actions, payload, is_enabled, position, user_id)
       values ('https://hooks.example.com/', '{Country}', '{create}', 'thin', true, '', 1)`,
    );
  });

  const run = (...args: string[]) => runCommand('scripts/backoffice.ts', args, world.environment);
  async function json<Document>(...args: string[]): Promise<Document> {
    const { code, stdout, stderr } = await run(...args, '--json');
    expect({ code, stderr }, args.join(' ')).to.deep.equal({ code: 0, stderr: '' });
    return JSON.parse(stdout) as Document;
  }

  const newProgram = '--name till --role Member --scope All';

  /** Makes a program of acme with a key, whose id is the `key`. */
  async function addProgram(): Promise<{ id: number; key: string }> {
    const line = `program add acme ${newProgram}`.split(' ');
    const { id } = await json<{ id: number }>(...line);
    const key = await json<{ id: string }>('program', 'key', 'add', 'acme', String(id));
    return { id, key: key.id };
  }

  /** Adds a provider to acme, of which nobody gets a mail, and returns its id. */
  async function addProvider(): Promise<string> {
    await insertWithoutTriggers(
      world,
      'identity_providers',
      `insert into identity_providers (tenant_id, name, issuer, client_ids)
       values (${world.acme.id}, 'Staff', 'https://login.example.com', '{one}')
       on conflict do nothing`,
    );
    const [added] = await controlSql<{ id: string }>(world, 'select id from identity_providers');
    return String(added?.id);
  }

  /**
   * Returns a digest of each table of the control database, except for those that change by
   * themselves, and `others`.
   */
  async function controlDigests(others: readonly string[] = []): Promise<object[]> {
    const tables = await controlSql<{ name: string }>(
      world,
      `select quote_ident(relname) as name from pg_class
        where relkind = 'r' and relnamespace = 'public'::regnamespace order by 1`,
    );
    const stable = tables.filter(({ name }) => ![...volatile, ...others].includes(name));
    const digests = stable.map(
      ({ name }) =>
        `select '${name}' as table, md5(string_agg(t::text, ',' order by t::text)) as rows from ${name} t`,
    );
    return controlSql(world, digests.join(' union all '));
  }

  it('every operation that changes something has a plan, which --dry-run shows', () => {
    const changing = all.filter(
      operation => operation.effect !== 'reads' || changingFields(operation).length > 0,
    );
    expect(changing.filter(({ plan }) => !plan).map(({ name }) => name)).to.deep.equal([]);
  });

  it('every operation that destroys something, or locks somebody out, is refused in a script without --yes', async () => {
    const { email } = await addSampleUser(world, world.acme);
    const client = await json<{ id: string }>('client', 'add', 'acme', email, '--name', 'till');
    const program = await addProgram();
    const provider = await addProvider();
    const [key] = await json<{ kid: string }[]>('key', 'list', 'acme');
    await world.provision('former');
    await run('delete', 'former', '--yes');

    const lines = {
      'webhooks disable': 'acme 1',
      suspend: 'acme',
      delete: 'acme',
      isolate: 'acme',
      purge: 'former',
      'user disable': `acme ${email}`,
      'user password': `acme ${email}`,
      'user factors reset': `acme ${email} --reason lost`,
      'user remove': `acme ${email}`,
      'session revoke': `acme --user ${email}`,
      'move settle': 'acme',
      'key disable': `acme ${key?.kid}`,
      'program disable': `acme ${program.id}`,
      'program key revoke': `acme ${program.key}`,
      'client revoke': `acme ${client.id}`,
      'identity-provider disable': `acme ${provider}`,
      'control service-login': '',
      'control reseal': '',
      'control after-restore': '',
    };

    // Other tests show the same of these operations, which need a restored database, another
    // server, or a second migration.
    const others = ['rollback', 'restore swap', 'restore back', 'databases drop', 'server remove'];
    const confirmed = all.filter(({ effect }) => effect === 'destroys' || effect === 'locks out');
    expect(
      confirmed.map(({ name }) => name).sort(),
      'name them in lines or others above',
    ).to.deep.equal([...Object.keys(lines), ...others].sort());

    const before = await controlDigests(['operator_actions']);
    for (const [name, args] of Object.entries(lines)) {
      const line = `${name} ${args}`.trim().split(' ');
      const { code, stderr } = await run(...line);
      expect({ name, code, stderr }).to.include({ code: 2 });
      expect(stderr, name).to.match(/Add --yes to confirm; nothing was changed/);
    }

    expect(await controlDigests(['operator_actions'])).to.deep.equal(before);
  });

  it('the code of the operations uses neither the terminal nor the arguments of the process', async () => {
    const folder = fileURLToPath(new URL('../../../src/operator/', import.meta.url));
    const definitions = (await readdir(folder, { recursive: true })).filter(file =>
      file.endsWith('.command.ts'),
    );
    expect(definitions.length).to.be.greaterThan(30);
    for (const file of definitions) {
      const code = await readFile(`${folder}${file}`, 'utf8');
      expect(code, file).to.not.match(
        /process\.(argv|exit|on|stdin|stderr)|'commander'|\/cli\/|signals\.ts/,
      );
    }
  });

  it('an operation runs without a terminal, and returns its documents and its plan to the caller', async () => {
    const suspend = all.find(({ name }) => name === 'suspend');
    const documents: unknown[] = [];
    const take = (document: unknown): void => void documents.push(document);

    const context: Context = {
      installation: world.installation,
      output: {
        wantsDocuments: true,
        result: take,
        part: take,
        text: () => {},
        list: take,
        page: take,
        warn: take,
      },
      progress: { isVisible: false, step: () => {}, start: () => {}, advance: () => {} },
      signal: new AbortController().signal,
      agree: async () => undefined,
      recordBirth: async () => {},
    };

    const { slug, guid } = await world.provision('initech');
    const values = withDefaults(suspend?.fields ?? {}, { slug });

    const plan = await suspend?.plan?.(values, context);
    expect(plan?.document).to.deep.equal({
      slug,
      guid,
      status: 'suspended',
      from: 'active',
      to: 'suspended',
      state: 'planned',
    });

    await suspend?.run(values, context, catalogue);
    expect(documents).to.deep.equal([{ slug, guid, status: 'suspended' }]);
  });

  it('--dry-run shows what would happen, and changes and records nothing in the control database', async () => {
    const user = await addSampleUser(world, world.acme);
    await world.login(world.acme, user);

    const client = await json<{ id: string }>(
      'client',
      'add',
      'acme',
      user.email,
      '--name',
      'till',
    );
    const program = await addProgram();
    const [key] = await json<{ kid: string }[]>('key', 'list', 'acme');

    const gone = await world.provision('gone');
    await run('delete', gone.slug, '--yes');

    const [tenants] = await controlSql<{ number: number }>(
      world,
      'select count(*)::int as number from tenants',
    );
    const before = await controlDigests();

    const planned: [line: string, shown: object | RegExp][] = [
      ['suspend acme', { from: 'active', to: 'suspended' }],
      ['delete acme', { from: 'active', to: 'deleted' }],
      [
        'purge gone',
        { slug: 'gone', guid: gone.guid, database: gone.database, users: 1, archives: 0 },
      ],
      ['key rotate acme', { previous: key?.kid }],
      [`key disable acme ${key?.kid}`, { kid: key?.kid, isReplaced: true }],
      [`program add acme ${newProgram}`, { name: 'till', role: 'Member', networks: [] }],
      [`program disable acme ${program.id}`, { id: program.id, keys: 1 }],
      [`program enable acme ${program.id}`, { id: program.id, keys: 1 }],
      [`program key add acme ${program.id} --days 7`, { programId: program.id, days: 7 }],
      [`program key revoke acme ${program.key}`, { revoked: [program.key] }],
      [`client revoke acme ${client.id}`, { id: client.id, name: 'till', tokens: 0 }],
      [`user remove acme ${user.email}`, { sessions: 1, clients: 1 }],
      ['edit acme --name Other', { state: 'planned' }],
      ['isolate acme', { isolated: true }],
      ['webhooks disable acme 1', {}],
      ['refresh acme', { guid: world.acme.guid }],
      ['clone acme acme-copy', { slug: 'acme-copy', of: 'acme', server: 'default' }],
      ['export acme --to /nowhere/acme.tar', { file: '/nowhere/acme.tar' }],
      ['undelete gone', { from: 'deleted', to: 'active' }],
      ['user add acme new@acme.test', { email: 'new@acme.test', role: 'Member' }],
      [`user role acme ${user.email} Administrator`, { role: 'Administrator' }],
      [`user enable acme ${user.email}`, { email: user.email }],
      [`user password acme ${user.email}`, { email: user.email }],
      [`client add acme ${user.email} --name other`, { name: 'other', email: user.email }],
      ['server set default --capacity 7', { before: null, capacity: 7 }],
      ['doctor --fix', { repairs: [] }],
      ['retention acme --activity 2y', { tenant: 'acme', activity: '2y', audit: 'forever' }],
      ['control migrate', { exists: true, pending: [], blockedBy: [] }],
      ['control service-login', { exists: true }],
      ['control reseal', {}],
      ['control after-restore', { keys: tenants?.number, tokens: 0 }],
    ];

    for (const [line, shown] of planned) {
      expect(await json(...line.split(' '), '--dry-run'), line).to.deep.include({
        state: 'planned',
        ...shown,
      });
    }

    for (const line of [
      `session revoke acme --user ${user.email}`,
      `user disable acme ${user.email}`,
    ]) {
      const { sessions } = await json<{ sessions: { email: string }[] }>(
        ...line.split(' '),
        '--dry-run',
      );

      expect(
        sessions.map(({ email }) => email),
        line,
      ).to.deep.equal([user.email]);
    }

    const manifest = { slug: 'demo', server: 'default', state: 'planned', error: null };
    expect(await json('provision', '--file', 'tenants/demo.json', '--dry-run')).to.deep.equal(
      manifest,
    );

    for (const line of ['databases prune', 'move settle acme']) {
      expect(await json(...line.split(' '), '--dry-run'), line).to.deep.equal([]);
    }

    expect(await controlDigests()).to.deep.equal(before);
  });

  it('every operation that somebody has seen the plan of does nothing when the plan is another one by now', async () => {
    const user = await addSampleUser(world, world.acme);
    const client = await json<{ id: string }>(
      'client',
      'add',
      'acme',
      user.email,
      '--name',
      'till',
    );
    const program = await addProgram();
    const provider = await addProvider();
    const [key] = await json<{ kid: string }[]>('key', 'list', 'acme');
    await world.provision('planned-away');
    await run('delete', 'planned-away', '--yes');
    await world.provision('planned-off');
    await run('suspend', 'planned-off', '--yes');

    const lines = [
      'provision planned-new --name New --admin-email new@new.test',
      'provision --file tenants/demo.json',
      'edit acme --name Other',
      'suspend acme',
      'resume planned-off',
      'delete acme',
      'undelete planned-away',
      'purge planned-away',
      'clone acme acme-planned',
      'isolate acme',
      'webhooks disable acme 1',
      'packs apply acme --packs countries',
      'export acme --to /nowhere/acme.tar',
      'refresh acme',
      'user add acme planned@acme.test',
      `user role acme ${user.email} Administrator`,
      `user disable acme ${user.email}`,
      `user enable acme ${user.email}`,
      `user password acme ${user.email}`,
      `user factors reset acme ${user.email} --reason lost`,
      `user remove acme ${user.email}`,
      `session revoke acme --user ${user.email}`,
      'key rotate acme',
      `key disable acme ${key?.kid}`,
      `program add acme ${newProgram}`,
      `program disable acme ${program.id}`,
      `program enable acme ${program.id}`,
      `program key add acme ${program.id}`,
      `program key revoke acme ${program.key}`,
      `client add acme ${user.email} --name other`,
      `client revoke acme ${client.id}`,
      `identity-provider disable acme ${provider}`,
      'migrate --all',
      'control migrate',
      'control service-login',
      'control reseal',
      'control after-restore',
      'server set default --capacity 7',
      'move settle acme',
      'databases prune',
      'retention acme --activity 2y',
      'doctor --fix',
    ];
    // What the plans of these need, other tests make: another server, an archive, a restored
    // database, a second migration. They take the same way.
    const others = [
      'restore',
      'restore swap',
      'restore back',
      'rollback',
      'control restore',
      'server add',
      'server remove',
      'server drain',
      'move',
      'databases drop',
      'backup init',
      'backup run',
      'backup recognise',
      'backup prune',
      'retention apply',
    ];
    const planned = all.filter(({ plan }) => plan).map(({ name }) => name);
    const nameOf = (line: string) =>
      planned
        .filter(name => `${line} `.startsWith(`${name} `))
        .toSorted((one, other) => other.length - one.length)[0];
    const covered = new Set(lines.map(nameOf));
    expect(
      planned.filter(name => !covered.has(name)),
      'name them in lines or others above',
    ).to.have.members(others);

    const before = await controlDigests(['operator_actions']);
    for (const line of lines) {
      const { asked, stderr } = await performStale(line.split(' '));
      expect(asked, `${line}: ${stderr}`).to.equal(1);
      expect(stderr, line).to.include('The plan has changed. Make it again.');
    }

    expect(await controlDigests(['operator_actions'])).to.deep.equal(before);
  });

  /** Runs a command as the console does after its plan, and says that the plan is another one. */
  async function performStale(line: string[]): Promise<{ asked: number; stderr: string }> {
    const child = fork('scripts/backoffice.ts', ['__perform', ...line], {
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
      env: { PATH: process.env.PATH, ...world.environment },
    });
    let asked = 0;
    let stderr = '';
    child.stderr?.setEncoding('utf8').on('data', text => (stderr += text));
    child.on('message', (message: RunMessage) => {
      if (message.kind !== 'confirm') return;
      asked++;
      child.send(false);
    });
    await once(child, 'close');

    return { asked, stderr };
  }

  // `defineChange` has one function for the change and its plan: two of its operations are
  // enough.
  it('--dry-run refuses what the operation would refuse', async () => {
    const refused: [line: string, reason: RegExp][] = [
      ['purge acme', /acme is active. Delete it first/],
      ['suspend nobody', /There is no tenant nobody/],
      [
        'clone acme globex',
        /^The tenant globex exists already and is active. Show it: bin\/backoffice show globex/,
      ],
      ['restore acme --lost', /has database .* of acme: nothing was changed/],
      [
        'user add acme admin@acme.test',
        /acme has a user admin@acme.test already. Set another password: bin.backoffice user password acme admin@acme.test/,
      ],
      ['export nobody --to x.tar', /nobody/],
      ['databases drop acme another', /acme has no database another that can be dropped/],
      ['move acme --back', /acme has no move that can be reversed/],
      ['server drain default --to second', /There is no server second/],
      [
        'restore swap acme',
        /Nothing is restored beside acme\..*: bin\/backoffice backup list acme; bin\/backoffice restore acme --archive <name>\n/,
      ],
    ];

    for (const [line, reason] of refused) {
      const { code, stderr } = await run(...line.split(' '), '--dry-run');
      expect(code, line).to.equal(1);
      expect(stderr, line).to.match(reason);
    }
  });
});
