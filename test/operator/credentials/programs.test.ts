import { randomUUID } from 'node:crypto';
import { expect } from 'chai';
import { addSampleUser } from '../../accounts/auth/sample-users.ts';
import { expectNotLogged, expectNotStored } from '../../accounts/auth/secrets.ts';
import { addRole, ownRecord } from '../../accounts/people/people-world.ts';
import type { Client } from '../../support/client.ts';
import type { ScriptResult } from '../../support/command-line.ts';
import { announcedMs, eventually } from '../../support/eventually.ts';
import { runCommand } from '../../support/run-command.ts';
import { controlSql, useLogin, useWorld } from '../../support/world.ts';

const me = '/api/v1/auth/me';
const key = /sbk_[0-9a-v]{32}[0-9a-f]{8}/;

interface AddedProgram {
  id: number;
  guid: string;
}

interface AddedKey {
  id: string;
  key: string;
  prefix: string;
  expiresAt: string;
}

describe('commands of programs', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');
  /** Two processes of the service. */
  let urls: string[];

  before(async () => {
    urls = [world.url, (await world.startAnotherServer()).url];
  });

  const run = (...args: string[]): Promise<ScriptResult> =>
    runCommand('scripts/backoffice.ts', args, world.environment);

  /**
   * Runs a command that must succeed.
   * @returns what it printed
   */
  async function text(...args: string[]): Promise<string> {
    const { code, stdout, stderr } = await run(...args);
    expect({ code, stderr }, args.join(' ')).to.deep.equal({ code: 0, stderr: '' });
    return stdout;
  }
  async function json<Document>(...args: string[]): Promise<Document> {
    return JSON.parse(await text(...args, '--json')) as Document;
  }

  /** Runs a command that must fail, and print nothing but the reason. */
  async function refusal(...args: string[]): Promise<{ code: number | null; stderr: string }> {
    const { code, stdout, stderr } = await run(...args);
    expect(stdout, args.join(' ')).to.equal('');
    expect(code, args.join(' ')).to.not.equal(0);
    return { code, stderr };
  }

  const add = (slug = 'acme', ...options: string[]) =>
    json<AddedProgram>(
      'program',
      'add',
      slug,
      '--name',
      'Till',
      '--role',
      'Member',
      '--scope',
      'All',
      ...options,
    );
  const addKey = (id: number, slug = 'acme', ...options: string[]) =>
    json<AddedKey>('program', 'key', 'add', slug, String(id), ...options);
  const withKey = (added: Pick<AddedKey, 'key'>): Client => world.anonymous.withToken(added.key);

  const statuses = (client: Client): Promise<number[]> =>
    Promise.all(urls.map(async url => (await client.at(url).get(me)).status));
  const settled = (client: Client, status: number) =>
    eventually(async () => (await statuses(client)).every(each => each === status), announcedMs);

  it('an operator adds a program, gives it two keys, revokes one, disables the program and enables it, in two processes', async () => {
    const { id, guid } = await add();
    const [first, second] = [await addKey(id), await addKey(id)];
    const [one, two] = [withKey(first), withKey(second)];
    await settled(one, 200);
    await settled(two, 200);
    expect((await one.get(me)).body).to.include({
      tenantGuid: world.acme.guid,
      userGuid: guid,
      firstName: 'Till',
      tokenId: first.id,
    });

    expect(
      await text('program', 'key', 'revoke', 'acme', first.id.toUpperCase(), '--yes'),
    ).to.equal(
      `Every process refuses key ${first.id} (${first.prefix}…) of program ${id} (Till), within ` +
        'a second as a rule.\n',
    );
    await settled(one, 401);
    expect(await statuses(two)).to.deep.equal([200, 200]);

    expect(await json('program', 'disable', 'acme', String(id), '--yes')).to.deep.equal({
      id,
      guid,
      name: 'Till',
      state: 'disabled',
    });
    await settled(two, 401);
    expect(await text('program', 'enable', 'acme', String(id))).to.equal(
      `Program ${id} (Till) is enabled: every process accepts its 1 valid key within a second, as a rule.\n`,
    );
    await settled(two, 200);
    expect(await statuses(one)).to.deep.equal([401, 401]);
  });

  it('a program that an operator adds has the role, the scope, the entity and the networks of the options, and the API has it', async () => {
    const role = await addRole(admin, ['orders.read']);
    const entity = (await admin.post('/api/v1/Entities', { Name: 'North', EntityType: 'supplier' }))
      .body;
    const options = ['--role', role.Name, '--scope', 'Self', '--entity', String(entity.Id)];
    const networks = ['--network', '10.1.0.0/16', '--network', '192.0.2.7'];

    const added = await json<AddedProgram>(
      'program',
      'add',
      'acme',
      '--name',
      ' Nightly import ',
      ...options,
      ...networks,
    );

    const expected = {
      name: 'Nightly import',
      role: role.Name,
      scope: 'Self',
      entityId: entity.Id,
    };
    const stored = ['10.1.0.0/16', '192.0.2.7/32'];
    expect(added).to.deep.equal({
      id: added.id,
      guid: added.guid,
      ...expected,
      networks: stored,
    });
    expect((await admin.get(`/api/v1/Programs/${added.id}`)).body).to.deep.include({
      Guid: added.guid,
      Name: 'Nightly import',
      Role: role.Name,
      Scope: 'Self',
      EntityId: entity.Id,
      Networks: stored,
      IsDisabled: false,
    });
  });

  it('program list and program key list show state, use and maker, and neither a key nor what another tenant has', async () => {
    const { id, guid } = await add();
    const foreign = await add('globex');
    await addKey(foreign.id, 'globex');
    const [revoked, used] = [await addKey(id), await addKey(id, 'acme', '--days', '7')];
    const ofAdmin = (await admin.post(`/api/v1/Programs/${id}/keys`, {})).body;
    await text('program', 'key', 'revoke', 'acme', revoked.id, '--yes');
    await settled(withKey(used), 200);
    const [program] = await eventually(async () => {
      const all = await json<{ id: number; lastUsedAt: string | null }[]>(
        'program',
        'list',
        'acme',
      );
      const found = all.filter(each => each.id === id);
      return found[0]?.lastUsedAt && found;
    });

    const listed = await json<{ id: string }[]>('program', 'key', 'list', 'acme', String(id));
    const table = await text('program', 'key', 'list', 'acme', String(id));
    const ids = (await text('program', 'list', 'acme', '-o', 'name')).trim().split('\n');

    expect(program).to.deep.include({
      guid,
      name: 'Till',
      role: 'Member',
      scope: 'All',
      entityId: null,
      networks: [],
      state: 'active',
      keys: 2,
    });
    expect(ids).to.include(String(id)).and.not.include(String(foreign.id));

    expect(listed.map(each => each.id)).to.deep.equal([ofAdmin.Id, used.id, revoked.id]);
    expect(listed[0]).to.include({ state: 'valid', madeBy: world.acme.admin.email });
    expect(listed[1]).to.include({
      state: 'valid',
      madeBy: null,
      prefix: used.prefix,
      programId: id,
    });
    expect(listed[2]).to.include({ state: 'revoked', lastUsedAt: null });
    const days = (Date.parse(used.expiresAt) - Date.now()) / 86_400_000;
    expect(days).to.be.within(6.9, 7);
    expect(table).to.match(/^id +prefix +state +program +expiresAt +lastUsedAt +madeBy$/m);
    for (const output of [JSON.stringify(listed), table]) expect(output).to.not.match(key);
  });

  it('the name of another tenant’s program or key is unknown to every command, and changes nothing', async () => {
    const { id } = await add();
    const added = await addKey(id);
    const own = await add('globex');

    const unknown = `globex has no program ${id}. List its programs: bin/backoffice program list globex\n`;
    for (const line of [
      ['program', 'disable', 'globex', String(id), '--yes'],
      ['program', 'enable', 'globex', String(id)],
      ['program', 'key', 'add', 'globex', String(id)],
      ['program', 'key', 'list', 'globex', String(id)],
    ]) {
      expect(await refusal(...line)).to.deep.equal({ code: 1, stderr: unknown });
    }
    expect(await refusal('program', 'key', 'revoke', 'globex', added.id, '--yes')).to.deep.equal({
      code: 1,
      stderr: `globex has no valid key ${added.id}. List its keys: bin/backoffice program key list globex\n`,
    });

    await settled(withKey(added), 200);
    expect(await json('program', 'key', 'list', 'globex', String(own.id))).to.deep.equal([]);
  });

  it('a person is no program: no command of programs takes the number of a user', async () => {
    const { Id } = (await ownRecord(world, admin)).body;

    for (const line of [
      ['program', 'disable', 'acme', String(Id), '--yes'],
      ['program', 'key', 'add', 'acme', String(Id)],
    ]) {
      expect((await refusal(...line)).stderr).to.include(`acme has no program ${Id}.`);
    }
    expect((await admin.get(me)).status).to.equal(200);
  });

  it('a key is printed by the command that makes it, and stands in no table, no log and no other output', async () => {
    const { id, guid } = await add();

    const planned = await text('program', 'key', 'add', 'acme', String(id), '--dry-run');
    const printed = await text('program', 'key', 'add', 'acme', String(id));

    expect(planned).to.equal(`Program ${id} (Till) would get a key that ends after 365 days.\n`);
    expect(printed.match(new RegExp(key, 'g'))).to.have.length(1);
    expect(printed).to.include(guid);
    const [secret = ''] = key.exec(printed) ?? [];
    const { id: keyId } = (
      await json<{ id: string }[]>('program', 'key', 'list', 'acme', String(id))
    )[0] ?? { id: '' };
    expect(printed).to.include(keyId);
    await settled(withKey({ key: secret }), 200);

    await expectNotStored(world, [secret]);
    expectNotLogged(world, [secret]);
    for (const line of [
      ['logs', '--json'],
      ['program', 'list', 'acme', '--json'],
      ['program', 'key', 'list', 'acme', '--json'],
    ]) {
      expect(await text(...line), line.join(' ')).to.not.include(secret);
    }
  });

  it('program key find names the tenant, the program and the id of a key by its first characters, and takes no whole key', async () => {
    const { id } = await add();
    const foreign = await add('globex');
    const added = await addKey(id);
    await addKey(foreign.id, 'globex');

    const found = await json<object[]>('program', 'key', 'find', added.prefix);
    const { code, stderr } = await refusal('program', 'key', 'find', added.key);

    expect(found).to.have.length(1);
    expect(found[0]).to.include({
      tenant: 'acme',
      id: added.id,
      programId: id,
      program: 'Till',
      prefix: added.prefix,
      state: 'valid',
    });
    expect(code).to.equal(2);
    expect(stderr).to.include('Give the first 12 characters').and.not.include(added.key);
    expect(await text('program', 'key', 'find', 'sbk_00000000')).to.equal(
      'No tenant has a key sbk_00000000….\n',
    );
  });

  it('a key in place of its id is refused, and is neither repeated nor recorded', async () => {
    const { id } = await add();
    const added = await addKey(id);

    for (const format of [[], ['--json']]) {
      const { code, stderr } = await refusal(
        'program',
        'key',
        'revoke',
        'acme',
        added.key,
        '--yes',
        ...format,
      );
      expect(code).to.equal(2);
      expect(stderr).to.include('never the key itself').and.not.include(added.key);
    }

    await expectNotStored(world, [added.key]);
    expect(await statuses(withKey(added))).to.deep.equal([200, 200]);
  });

  it('the audit log of the tenant has what an operator changes of programs and keys, with the login of the operator, and without the key', async () => {
    const { id } = await add();
    const added = await addKey(id);
    await text('program', 'disable', 'acme', String(id), '--yes', '--reason', 'till was stolen');
    await text('program', 'key', 'revoke', 'acme', added.id, '--yes');

    const log = async (resource: string, id: string | number) =>
      (await admin.get(`/api/v1/AuditLog?resource=${resource}&key=${id}`)).body;
    const entries = [...(await log('Program', id)), ...(await log('ProgramKey', added.id))];
    const logins = await controlSql<{ login: string; user: string | null }>(
      world,
      `select distinct database_user as login, user_id as user from audit_log
        where resource in ('Program', 'ProgramKey') and record_key in (?, ?)`,
      [String(id), added.id],
    );
    const actions = await controlSql<{ command: string; reason: string | null }>(
      world,
      `select command, reason from operator_actions where slug = 'acme' and arguments ->> 'program' = ? order by id`,
      [String(id)],
    );

    expect(entries.map(({ Resource, Action }) => `${Resource} ${Action}`)).to.deep.equal([
      'Program update',
      'Program create',
      'ProgramKey update',
      'ProgramKey create',
    ]);
    for (const entry of entries) expect(entry.UserGuid).to.equal(null);
    expect(logins).to.have.length(1);
    expect(logins[0]?.user).to.equal(null);
    expect(JSON.stringify(entries)).to.not.include(added.key);
    expect(actions).to.deep.equal([
      { command: 'program key add', reason: null },
      { command: 'program disable', reason: 'till was stolen' },
    ]);
  });

  it('what a program cannot have is refused with the reason, and adds nothing', async () => {
    const before = await text('program', 'list', 'acme', '-o', 'name');
    const line = (changes: Record<string, string>) => [
      'program',
      'add',
      'acme',
      ...Object.entries({ name: 'Till', role: 'Member', scope: 'All', ...changes }).map(
        ([name, value]) => `--${name}=${value}`,
      ),
    ];
    const refused: [changes: Record<string, string>, code: number, reason: string][] = [
      [{ role: 'Nobody' }, 1, 'acme has no role Nobody. Its roles are Administrator, '],
      [{ entity: '9999' }, 1, 'acme has no entity 9999.'],
      [{ name: ' ' }, 2, 'The name of the program must not be empty.'],
      [
        { name: 'x'.repeat(256) },
        2,
        'The name of the program must be at most 255 characters long.',
      ],
      [{ network: '10.0.0.1/8' }, 2, 'The network 10.0.0.1/8 must be an address, or a network in'],
      [{ scope: 'Everything' }, 2, 'Allowed choices are '],
    ];

    for (const [changes, code, reason] of refused) {
      for (const more of [[], ['--dry-run']]) {
        const found = await refusal(...line(changes), ...more);
        expect(found.code, reason).to.equal(code);
        expect(found.stderr).to.include(reason);
      }
    }
    const many = Array.from({ length: 21 }, (_, at) => `--network=10.0.0.${at}`);
    expect((await refusal(...line({}), ...many)).stderr).to.equal(
      'The list of networks must be at most 20 items long.\n',
    );
    expect((await refusal('program', 'key', 'add', 'acme', 'Till')).stderr).to.include(
      'Give the number of a program, as program list shows it.',
    );

    expect(await text('program', 'list', 'acme', '-o', 'name')).to.equal(before);
  });

  it('a program has at most five valid keys, and a key ends after 731 days at most', async () => {
    const { id } = await add();
    const keyIds: string[] = [];
    for (const days of ['1', '731', '365', '90', '30']) {
      keyIds.push((await addKey(id, 'acme', '--days', days)).id);
    }

    for (const more of [[], ['--dry-run']]) {
      const { code, stderr } = await refusal('program', 'key', 'add', 'acme', String(id), ...more);
      expect(code).to.equal(1);
      expect(stderr).to.equal(
        `Program ${id} (Till) has 5 valid keys, and can have no more. List them, and revoke one: ` +
          `bin/backoffice program key list acme ${id}\n`,
      );
    }
    await text('program', 'key', 'revoke', 'acme', keyIds[0] ?? '', '--yes');
    for (const days of ['732', '0', '1.5']) {
      expect(
        (await refusal('program', 'key', 'add', 'acme', String(id), '--days', days)).code,
      ).to.equal(2);
    }
    await addKey(id);
  });

  it('all valid keys that a user has made are revoked at once, and no other one, and programs that are left without one are named', async () => {
    const maker = await addSampleUser(world, world.acme, { role: 'Administrator', scope: 'All' });
    const client = await world.login(world.acme, maker);
    const [one, other] = [await add(), await add()];
    const make = async (id: number) =>
      (await client.post(`/api/v1/Programs/${id}/keys`, {})).body as { Id: string; Key: string };
    const ofMaker = [await make(one.id), await make(other.id)];
    const ofOperator = await addKey(other.id);
    const line = ['program', 'key', 'revoke', 'acme', '--made-by', maker.email];

    const planned = await text(...line, '--dry-run');
    const { revoked } = await json<{ revoked: string[] }>(...line, '--yes');
    const again = await json<{ revoked: string[] }>(...line, '--yes');

    expect(planned).to.include(
      `It would refuse 2 valid keys of ${other.id} (Till), ${one.id} (Till) that ${maker.email} has made.`,
    );
    expect(planned).to.include(`Left without a valid key: ${one.id} (Till).`);
    expect(revoked).to.have.members(ofMaker.map(({ Id }) => Id));
    expect(again).to.deep.equal({ revoked: [] });
    for (const { Key } of ofMaker) await settled(withKey({ key: Key }), 401);
    await settled(withKey(ofOperator), 200);
    expect((await refusal('program', 'key', 'revoke', 'acme', '--yes')).stderr).to.include(
      'Give either the id of a key, or --made-by with an e-mail address',
    );
    const foreign = ['program', 'key', 'revoke', 'globex', '--made-by', maker.email, '--yes'];
    expect((await refusal(...foreign)).stderr).to.include(`globex has no user ${maker.email}.`);
  });

  it('user disable and user remove name the valid keys of programs that the user has made', async () => {
    const maker = await addSampleUser(world, world.acme, { role: 'Administrator', scope: 'All' });
    const client = await world.login(world.acme, maker);
    const { id } = await add();
    expect((await client.post(`/api/v1/Programs/${id}/keys`, {})).status).to.equal(201);
    const made = 'The user has made 1 key of programs, still valid: bin/backoffice program key ';
    const user = ['acme', maker.email];

    const planned = await text('user', 'remove', ...user, '--dry-run');
    const disabled = await text('user', 'disable', ...user, '--yes');
    const removed = await text('user', 'remove', ...user, '--yes');
    const [key] = await json<{ state: string; madeBy: string }[]>(
      'program',
      'key',
      'list',
      'acme',
      String(id),
    );

    for (const output of [planned, disabled]) {
      expect(output).to.include(`${made}revoke acme --made-by ${maker.email}`);
    }
    expect(removed).to.include(`${made}list acme`);
    expect(key).to.include({ state: 'valid', madeBy: `user ${maker.id}` });
  });

  it('a key that is revoked, or has ended, cannot be revoked again', async () => {
    const { id } = await add();
    const [revoked, ended] = [await addKey(id), await addKey(id)];
    await text('program', 'key', 'revoke', 'acme', revoked.id, '--yes');
    await controlSql(world, `update program_keys set expires_at = now() where id = ?`, [ended.id]);

    for (const { id: keyId } of [revoked, ended]) {
      expect((await refusal('program', 'key', 'revoke', 'acme', keyId, '--yes')).stderr).to.equal(
        `acme has no valid key ${keyId}. List its keys: bin/backoffice program key list acme\n`,
      );
    }
    const states = await json<{ id: string; state: string }[]>(
      'program',
      'key',
      'list',
      'acme',
      String(id),
    );
    expect(states.map(({ id, state }) => [id, state])).to.have.deep.members([
      [revoked.id, 'revoked'],
      [ended.id, 'ended'],
    ]);
  });

  it('while a process of a former build runs, a command makes no program and no key, and revokes and disables', async () => {
    const { id } = await add();
    const added = await addKey(id);
    const former = randomUUID();
    await controlSql(
      world,
      `insert into processes (id, kind, host, pid, build, tenant_head, control_head, seen_at)
       values (?, 'service', 'elsewhere', 17, '0.2.0', '0001-first-schema', '0001-first-schema', now() + interval '50 seconds')`,
      [former],
    );

    try {
      const before = await text('program', 'list', 'acme', '-o', 'name');
      for (const line of [
        ['program', 'add', 'acme', '--name=Other', '--role=Member', '--scope=All'],
        ['program', 'key', 'add', 'acme', String(id)],
      ]) {
        for (const more of [[], ['--dry-run']]) {
          const { code, stderr } = await refusal(...line, ...more);
          expect(code).to.equal(1);
          expect(stderr).to.equal(
            'A process of the service runs with a build that does not know programs: nothing was ' +
              'changed. Replace it, and run the command again. Show the processes: ' +
              'bin/backoffice processes\n',
          );
        }
      }
      expect(await text('program', 'list', 'acme', '-o', 'name')).to.equal(before);
      await text('program', 'key', 'revoke', 'acme', added.id, '--yes');
      await text('program', 'disable', 'acme', String(id), '--yes');
      await text('program', 'enable', 'acme', String(id));
    } finally {
      await controlSql(world, 'delete from processes where id = ?', [former]);
    }
    await addKey(id);
  });

  it('a key of a disabled program, or of an isolated tenant, is made with a warning that says how it is accepted', async () => {
    await world.provision('isolated');
    const { id } = await add('isolated');
    await text('program', 'disable', 'isolated', String(id), '--yes');
    await text('isolate', 'isolated', '--yes');

    const { code, stdout, stderr } = await run('program', 'key', 'add', 'isolated', String(id));

    expect(code).to.equal(0);
    expect(stderr).to.include(`bin/backoffice program enable isolated ${id}`);
    expect(stderr).to.include('bin/backoffice isolate isolated --off');
    const [secret = ''] = key.exec(stdout) ?? [];
    const client = withKey({ key: secret });
    await settled(client, 401);
    await text('program', 'enable', 'isolated', String(id));
    await text('isolate', 'isolated', '--off', '--yes');
    await settled(client, 200);
  });

  it('completion offers the programs of the tenant, and its valid keys, with their names', async () => {
    const { id } = await add();
    const foreign = await add('globex');
    const [valid, revoked] = [await addKey(id), await addKey(id)];
    await text('program', 'key', 'revoke', 'acme', revoked.id, '--yes');

    const verbs = await text('__complete', 'program', 'key', '');
    // values that a busy machine does not read within a second are not offered
    const offered = (...words: string[]) =>
      eventually(async () => (await text('__complete', ...words, '')) || undefined);
    const programs = await offered('program', 'disable', 'acme');
    const keys = await offered('program', 'key', 'revoke', 'acme');

    expect(verbs.split('\n').map(line => line.split('\t')[0])).to.include.members([
      'add',
      'list',
      'revoke',
    ]);
    expect(programs).to.include(`${id}\tTill\n`).and.not.include(`${foreign.id}\t`);
    expect(keys).to.include(`${valid.id}\t${valid.prefix}… of Till\n`).and.not.include(revoked.id);
  });
});
