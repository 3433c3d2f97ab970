import { randomBytes, randomUUID } from 'node:crypto';
import { expect } from 'chai';
import { lockSpaces, withLock } from '../../../src/lib/postgres/advisory-locks.ts';
import { claimsOf } from '../../accounts/auth/forge.ts';
import { addSampleUser, type SampleUser } from '../../accounts/auth/sample-users.ts';
import { expectNotLogged, expectNotStored } from '../../accounts/auth/secrets.ts';
import type { Client } from '../../support/client.ts';
import type { ScriptResult } from '../../support/command-line.ts';
import { announcedMs, eventually } from '../../support/eventually.ts';
import { runCommand } from '../../support/run-command.ts';
import { controlSql, useWorld } from '../../support/world.ts';

const path = '/api/v1/EntityStatus';
const uuid = /[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/;

interface Key {
  kid: string;
  status: string;
  createdAt: string;
  retiredAt: string | null;
}

interface ApiClient {
  id: string;
  secret: string;
}

describe('access commands', () => {
  const world = useWorld();
  /** Every secret that a test receives: none of them may appear in the log of the service. */
  const secrets = new Set<string>();

  before(async () => {
    await controlSql(world, `update tenants set features = '{legacyTokens}'`);
  });
  afterEach('the log of the service contains no secret', () =>
    expectNotLogged(world, [...secrets, world.acme.admin.password]),
  );

  const tenant = (
    args: string[],
    environment: Record<string, string> = {},
  ): Promise<ScriptResult> =>
    runCommand('scripts/tenant.ts', args, { ...world.environment, ...environment });

  /**
   * Runs a command that must succeed.
   * @returns what it printed
   */
  async function text(args: string[]): Promise<string> {
    const { code, stdout, stderr } = await tenant(args);
    expect({ code, stderr }).to.deep.equal({ code: 0, stderr: '' });
    return stdout;
  }
  async function json<Document>(args: string[]): Promise<Document> {
    return JSON.parse(await text([...args, '--json'])) as Document;
  }

  const login = async (
    credentials: { email: string; password: string } = world.acme.admin,
  ): Promise<Client> => {
    const client = await world.login(world.acme, credentials);
    for (const token of Object.values(client.tokens ?? {})) if (token) secrets.add(token);
    return client;
  };
  const addUser = async (role = 'Member'): Promise<SampleUser> => {
    const added = await addSampleUser(world, world.acme, { role });
    secrets.add(added.password);
    return added;
  };
  const generate = ({ id, secret }: ApiClient) =>
    world.anonymous.get('/api/Data/GenerateToken', {
      Authorization: `Basic ${Buffer.from(`${id}:${secret}`).toString('base64')}`,
    });
  const sid = ({ tokens }: Client): string => String(claimsOf(tokens?.accessToken ?? '').sid);
  const isServed = async (client: Client): Promise<boolean> =>
    (await client.get(path)).status === 200;
  const expectRefused = (...clients: Client[]): Promise<boolean> =>
    eventually(async () => {
      const responses = await Promise.all(clients.map(client => client.get(path)));
      return responses.every(({ status, body }) => status === 401 && body.code === 'invalid_token');
    }, announcedMs);

  describe('keys', () => {
    it('key list, rotate and disable print text, and the list shows no secret', async () => {
      const before = await json<Key[]>(['key', 'list', 'acme']);
      const previous = before.find(({ status }) => status === 'active')?.kid ?? '';
      const client = await login();
      const rotated = await text(['key', 'rotate', 'acme']);
      const kid = uuid.exec(rotated)?.[0] ?? '';
      expect(rotated).to.equal(`acme now signs with key ${kid}.\n`);
      expect(await isServed(client)).to.equal(true);

      const [list, disabled] = [
        await text(['key', 'list', 'acme']),
        await text(['key', 'disable', 'acme', kid, '--yes']),
      ];

      const lines = list.trimEnd().split('\n');
      expect(lines[0]).to.match(/^kid +status +createdAt +retiredAt$/);
      expect(lines).to.have.length(1 + before.length + 1);
      expect(lines.find(line => line.startsWith(previous))).to.match(
        new RegExp(`^${uuid.source} +retiring +\\S+ +\\S+Z$`),
      );
      expect(lines.at(-1)).to.match(new RegExp(`^${kid} +active +\\S+ +–$`));

      expect(disabled).to.equal(
        `Key ${kid} is disabled: its tokens are refused, and its users log in again.\n`,
      );
      expect(await isServed(client), 'a token of the previous key').to.equal(true);
    });

    it('key list, rotate and disable print JSON, and the running service applies the change', async () => {
      const before = await json<Key[]>(['key', 'list', 'acme']);
      for (const key of before) {
        expect(key).to.have.all.keys('kid', 'status', 'createdAt', 'retiredAt');
      }

      const client = await login();
      const { kid, ...others } = await json<{ kid: string }>(['key', 'rotate', 'acme']);
      expect(others).to.deep.equal({});
      expect(before.some(key => key.kid === kid)).to.equal(false);

      const kidOf = ({ tokens }: Client): string =>
        JSON.parse(Buffer.from(tokens?.accessToken.split('.')[0] ?? '', 'base64url').toString())
          .kid;

      const withNewKey = await eventually(async () => {
        const candidate = await login();
        return kidOf(candidate) === kid && candidate;
      }, announcedMs);
      expect(await isServed(client)).to.equal(true);

      expect(await json(['key', 'disable', 'acme', kid, '--yes'])).to.deep.equal({
        kid,
        status: 'disabled',
      });
      await expectRefused(withNewKey);
      expect(await isServed(client), 'a token of the previous key').to.equal(true);

      const [{ active } = { active: '' }] = await controlSql<{ active: string }>(
        world,
        `select count(*) as active from signing_keys where status = 'active' and tenant_id = ?`,
        [world.acme.id],
      );
      expect(active).to.equal('1');

      expect(await isServed(await login())).to.equal(true);
    });

    it('access is taken away while another command works on the tenant, however long that takes', async () => {
      const user = await addUser();
      const [bySession, byKey] = [await login(user), await login()];
      const [active] = (await json<Key[]>(['key', 'list', 'acme'])).filter(
        ({ status }) => status === 'active',
      );
      const [tenantRow] = await controlSql<{ id: string }>(
        world,
        `select id from tenants where slug = 'acme'`,
      );

      await withLock(
        world.environment.DATABASE_URL ?? '',
        lockSpaces.tenant,
        Number(tenantRow?.id),
        async () => {
          await text(['session', 'revoke', 'acme', '--user', user.email, '--yes']);
          await text(['user', 'disable', 'acme', user.email, '--yes']);
          await text(['key', 'disable', 'acme', active?.kid ?? '', '--yes']);
          await expectRefused(bySession, byKey);
          await text(['suspend', 'acme', '--yes']);
        },
      );

      await text(['resume', 'acme']);
    });

    it('key rotate gives a key to a tenant without an active one, and its dry run says so', async () => {
      const { id } = await world.provision('keyless');
      await controlSql(
        world,
        `update signing_keys set status = 'disabled', retired_at = now() where tenant_id = ?`,
        [id],
      );

      const planned = await text(['key', 'rotate', 'keyless', '--dry-run']);
      expect(planned).to.equal('keyless would sign with a new key.\n');

      const { kid } = await json<{ kid: string }>(['key', 'rotate', 'keyless']);
      expect((await json<Key[]>(['key', 'list', 'keyless'])).at(-1)).to.include({
        kid,
        status: 'active',
      });
    });

    it('a command with a wrong master key changes no signing key, and the service continues', async () => {
      const before = await controlSql(world, 'select kid, status from signing_keys order by kid');
      const [{ kid } = { kid: '' }] = await controlSql<{ kid: string }>(
        world,
        `select kid from signing_keys where status = 'active' and tenant_id = ?`,
        [world.acme.id],
      );
      const wrong = { MASTER_KEY: randomBytes(32).toString('base64') };

      const refused = await Promise.all([
        tenant(['key', 'rotate', 'acme'], wrong),
        tenant(['key', 'disable', 'acme', kid, '--yes'], wrong),
      ]);

      for (const { code, stdout, stderr } of refused) {
        expect({ code, stdout }).to.deep.equal({ code: 1, stdout: '' });
        expectOneLine(stderr);
        expect(stderr).to.match(/MASTER_KEY/);
      }

      expect(
        await controlSql(world, 'select kid, status from signing_keys order by kid'),
      ).to.deep.equal(before);
      expect(await isServed(await login())).to.equal(true);
    });
  });

  describe('sessions', () => {
    it('session list returns the open sessions of a tenant or a user, newest first, as text and as JSON', async () => {
      const user = await addUser();
      const [idle, first, second] = [await login(user), await login(user), await login(user)];
      await controlSql(
        world,
        `update sessions set refreshed_at = now() - interval '8 days' where id = ?`,
        [sid(idle)],
      );
      const foreign = await world.login(world.globex);

      const [all, table, none] = await Promise.all([
        json<Record<string, string>[]>(['session', 'list', 'acme']),
        text(['session', 'list', 'acme', user.email.toUpperCase()]),
        text(['session', 'list', 'acme', (await addUser()).email]),
      ]);

      const own = all.filter(({ email }) => email === user.email);
      expect(own.map(({ id }) => id)).to.deep.equal([sid(second), sid(first)]);
      for (const session of all) {
        expect(session).to.have.all.keys('id', 'email', 'createdAt', 'refreshedAt');
      }
      expect(all.map(({ id }) => id)).to.not.include(sid(foreign));

      const lines = table.trimEnd().split('\n');
      expect(lines[0]).to.match(/^id +email +createdAt +refreshedAt$/);
      expect(lines.slice(1).map(line => line.split(' ')[0])).to.deep.equal([
        sid(second),
        sid(first),
      ]);

      expect(none).to.equal('No open sessions.\n');
    });

    it('session revoke ends one session or all sessions of a user, and no others', async () => {
      const [one, two] = [await addUser(), await addUser()];
      const [revoked, alsoRevoked, kept] = [await login(one), await login(one), await login(one)];
      const [ofTwo, alsoOfTwo, admin] = [await login(two), await login(two), await login()];
      for (const client of [revoked, alsoRevoked, kept, ofTwo, alsoOfTwo, admin]) {
        expect(await isServed(client)).to.equal(true);
      }

      const revoke = ['session', 'revoke', 'acme', '--yes'];
      const printed = await Promise.all([
        json([...revoke, sid(revoked)]),
        json([...revoke, '--user', two.email]),
        text([...revoke, sid(alsoRevoked)]),
      ]);

      expect(printed).to.deep.equal([
        { revoked: sid(revoked) },
        { revoked: two.email },
        `Session ${sid(alsoRevoked)} is revoked: every process refuses its tokens within a second, as a rule.\n`,
      ]);

      await expectRefused(revoked, alsoRevoked, ofTwo, alsoOfTwo);
      for (const client of [kept, admin]) expect(await isServed(client)).to.equal(true);

      const [row] = await controlSql(
        world,
        'select distinct revoked_reason from sessions where user_id = ?',
        [two.id],
      );
      expect(row).to.deep.equal({ revoked_reason: 'operator' });
    });
  });

  describe('API clients', () => {
    it('only client add shows a secret, and client revoke ends all tokens', async () => {
      const [user, other] = [await addUser(), await addUser()];
      const [none, added, addedText] = await Promise.all([
        text(['client', 'list', 'globex']),
        json<ApiClient>(['client', 'add', 'acme', user.email, '--name', 'Price list']),
        text(['client', 'add', 'acme', other.email, '--name', 'Till']),
      ]);
      expect(none).to.equal('No API clients.\n');
      expect(added).to.have.all.keys('id', 'secret');
      const [, id = '', secret = ''] =
        /^id +(client-[0-9a-f]{16})\nsecret +([\w-]{43})\n$/.exec(addedText) ?? [];
      const apiClients = [added, { id, secret }];
      const clients: Client[] = [];
      for (const apiClient of apiClients) {
        const { status, body } = await generate(apiClient);
        expect(status).to.equal(200);
        secrets.add(apiClient.secret).add(body.token);
        clients.push(world.anonymous.withToken(body.token));
        expect(await isServed(clients.at(-1)!)).to.equal(true);
        await expectNotStored(world, [apiClient.secret, body.token]);
      }

      const [listed, table] = await Promise.all([
        json<Record<string, unknown>[]>(['client', 'list', 'acme']),
        text(['client', 'list', 'acme']),
      ]);
      const client = listed.find(each => each.id === added.id);
      expect(client).to.include({
        name: 'Price list',
        user: user.email,
        state: 'active',
        tokens: 1,
      });
      expect(client).to.have.all.keys(
        'id',
        'name',
        'user',
        'state',
        'tokens',
        'uses',
        'lastUsedAt',
      );
      expect(table).to.match(/^id +name +user +state +tokens +uses +lastUsedAt$/m);
      expect(table).to.match(new RegExp(`^${id} +Till +${other.email} +active +1 `, 'm'));
      for (const output of [JSON.stringify(listed), table]) {
        for (const each of secrets) expect(output.includes(each)).to.equal(false);
      }

      const printed = await Promise.all([
        json(['client', 'revoke', 'acme', added.id, '--yes']),
        text(['client', 'revoke', 'acme', id, '--yes']),
      ]);
      expect(printed).to.deep.equal([
        { id: added.id, state: 'revoked' },
        `Client ${id} and its tokens are revoked.\n`,
      ]);
      await expectRefused(...clients);
      for (const apiClient of apiClients) expect((await generate(apiClient)).status).to.equal(401);
      const secondRevoke = await tenant(['client', 'revoke', 'acme', id, '--yes']);
      expect({ code: secondRevoke.code, stdout: secondRevoke.stdout }).to.deep.equal({
        code: 1,
        stdout: '',
      });
      expectOneLine(secondRevoke.stderr);
    });
  });

  describe('users', () => {
    it('user disable ends all sessions, and user enable allows logins but restores no session', async () => {
      const [one, two] = [await addUser(), await addUser()];
      const clients = [await login(one), await login(two)];
      const other = await login();
      for (const client of clients) expect(await isServed(client)).to.equal(true);

      const printed = await Promise.all([
        json(['user', 'disable', 'acme', one.email, '--yes']),
        text(['user', 'disable', 'acme', two.email.toUpperCase(), '--yes']),
      ]);
      expect(printed).to.deep.equal([
        { guid: one.guid, email: one.email, state: 'disabled', clones: [] },
        `${two.email} is disabled. Webhooks that send for this user stop: bin/backoffice webhooks acme\n`,
      ]);

      await expectRefused(...clients);
      for (const { email, password } of [one, two]) {
        const refused = await world.anonymous.post(
          '/api/v1/auth/login',
          { email, password },
          { 'X-Tenant': world.acme.guid },
        );
        expect(refused.status).to.equal(401);
      }

      const printedThen = await Promise.all([
        json(['user', 'enable', 'acme', one.email]),
        text(['user', 'enable', 'acme', two.email]),
      ]);
      expect(printedThen).to.deep.equal([
        { guid: one.guid, email: one.email, state: 'enabled' },
        `${two.email} is enabled.\n`,
      ]);

      for (const user of [one, two]) expect(await isServed(await login(user))).to.equal(true);
      for (const client of clients) {
        expect((await client.get(path)).status, 'a session that was revoked').to.equal(401);
      }
      expect(await isServed(other)).to.equal(true);
    });
  });

  it('a command that fails prints one line, exits with 1 and changes nothing', async () => {
    const foreign = await world.login(world.globex);
    const [key] = await controlSql<{ kid: string }>(
      world,
      'select kid from signing_keys where tenant_id = ?',
      [world.globex.id],
    );

    const state = () =>
      controlSql(
        world,
        `select (select count(*) from signing_keys where status = 'active') as active,
          (select count(*) from sessions where revoked_at is not null) as revoked,
          (select count(*) from users where disabled_at is not null) as disabled,
          (select count(*) from api_clients) as clients`,
      );
    const before = await state();

    const failing = [
      ['key', 'rotate', 'nobody'],
      ['key', 'disable', 'acme', 'no-such-key', '--yes'],
      ['key', 'disable', 'acme', key?.kid ?? ''],
      ['session', 'list', 'acme', 'nobody@acme.test'],
      ['session', 'revoke', 'acme', randomUUID(), '--yes'],
      ['session', 'revoke', 'acme', 'no-uuid', '--yes'],
      ['session', 'revoke', 'acme', sid(foreign)],
      ['session', 'revoke', 'acme', '--user', world.globex.admin.email, '--yes'],
      ['client', 'add', 'acme', 'nobody@acme.test', '--name', 'x'],
      ['client', 'revoke', 'acme', 'client-0', '--yes'],
      ['user', 'disable', 'acme', 'nobody@acme.test', '--yes'],
      ['retention', 'log', 'nobody'],
    ];

    await Promise.all(
      failing.map(async (each, index) => {
        const args = index % 2 ? each : [...each, '--json'];
        const { code, stdout, stderr } = await tenant(args);
        expect({ code, stdout }, args.join(' ')).to.deep.equal({ code: 1, stdout: '' });
        expectOneLine(stderr);
      }),
    );

    expect(await state()).to.deep.equal(before);
    expect(await isServed(foreign)).to.equal(true);
  });

  it('a command with wrong usage exits with 2 before it changes anything', async () => {
    const wrong = [
      ['session', 'revoke', 'acme', '--yes'],
      ['session', 'revoke', 'acme', randomUUID(), '--user', world.acme.admin.email, '--yes'],
      ['client', 'add', 'acme', world.acme.admin.email],
      ['client', 'add', 'acme', world.acme.admin.email, '--name', ' '],
      ['migrate', '--all', 'acme'],
      ['backup', 'run', '--all', 'acme'],
      ['key', 'melt', 'acme'],
    ];

    await Promise.all(
      wrong.map(async args => {
        const { code, stdout, stderr } = await tenant(args);
        expect({ code, stdout }, args.join(' ')).to.deep.equal({ code: 2, stdout: '' });
        expect(stderr).not.to.equal('');
      }),
    );

    expect(await isServed(await login())).to.equal(true);
  });

  describe('control reseal', () => {
    it('control reseal under the same master key seals every secret again while the service serves', async () => {
      const client = await login();
      const before = await controlSql(world, 'select secret from signing_keys order by kid');

      const { code, stdout, stderr } = await runCommand(
        'scripts/control.ts',
        ['reseal', '--yes'],
        world.environment,
      );

      expect({ code, stderr }).to.deep.equal({ code: 0, stderr: '' });
      expect(stdout).to.match(/^\d+ secrets are sealed under MASTER_KEY\.\n$/);
      expect(
        await controlSql(world, 'select secret from signing_keys order by kid'),
      ).to.not.deep.equal(before);
      expect(await isServed(client)).to.equal(true);
      expect(await isServed(await login())).to.equal(true);
    });
  });

  describe('log of the service', () => {
    it('the log of the service contains no password, token or client secret', async () => {
      const user = await addUser();
      const { tokens } = await login(user);
      const client = await json<ApiClient>(['client', 'add', 'acme', user.email, '--name', 'Till']);
      const { status, body } = await generate(client);

      expect(status).to.equal(200);
      secrets.add(client.secret).add(body.token);
      expect([...secrets]).to.include.members([
        user.password,
        tokens?.accessToken,
        tokens?.refreshToken,
      ]);
      expectNotLogged(world, [...secrets, world.acme.admin.password]);
    });
  });

  /** Expects one line without a stack and without a secret. */
  function expectOneLine(line: string): void {
    expect(line.trimEnd()).to.match(/\S/).and.not.include('\n');
    expect(line).not.to.match(/\bat .*\.ts|node_modules|:\/\/\S+@/);
    expect(line.includes(world.environment.MASTER_KEY ?? '-')).to.equal(false);
  }
});
