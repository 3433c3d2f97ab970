import { randomBytes, randomUUID } from 'node:crypto';
import { expect } from 'chai';
import { claimsOf } from '../../auth/forge.ts';
import { addSampleUser, controlSql, type SampleUser } from '../../auth/sample-users.ts';
import { expectNotLogged, expectNotStored } from '../../auth/secrets.ts';
import type { Client } from '../../support/client.ts';
import { runScript, type ScriptResult } from '../../support/command-line.ts';
import { eventually } from '../../support/eventually.ts';
import { createWorld, type World } from '../../support/world.ts';

const path = '/api/v1/EntityStatus';
const uuid = /[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/;

interface Key {
  kid: string;
  status: string;
  createdAt: string;
  retiredAt: string | null;
}

interface OldProgram {
  id: string;
  secret: string;
}

describe('The operator, over access,', () => {
  let world: World;
  const secrets = new Set<string>();

  before(async () => {
    world = await createWorld();
    await controlSql(world, `update tenants set features = '{legacyTokens}'`);
  });
  after(() => world.close());

  const tenant = (args: string[], environment: Record<string, string> = {}): Promise<ScriptResult> =>
    runScript('scripts/tenant.ts', args, { ...world.environment, ...environment });

  /** Runs a command that must succeed, and tells what it printed. */
  async function text(args: string[]): Promise<string> {
    const { code, stdout, stderr } = await tenant(args);
    expect({ code, stderr }).to.deep.equal({ code: 0, stderr: '' });
    return stdout;
  }
  async function json<Document>(args: string[]): Promise<Document> {
    return JSON.parse(await text([...args, '--json'])) as Document;
  }

  const login = async (who: { email: string; password: string } = world.acme.admin): Promise<Client> => {
    const client = await world.login(world.acme, who);
    for (const token of Object.values(client.tokens ?? {})) if (token) secrets.add(token);
    return client;
  };
  const person = async (role = 'Member'): Promise<SampleUser> => {
    const added = await addSampleUser(world, world.acme, { role });
    secrets.add(added.password);
    return added;
  };
  const sid = ({ tokens }: Client): string => String(claimsOf(tokens?.accessToken ?? '').sid);
  const works = async (client: Client): Promise<boolean> => (await client.get(path)).status === 200;
  const expectEnded = (...clients: Client[]): Promise<boolean> =>
    eventually(async () => {
      const answers = await Promise.all(clients.map(client => client.get(path)));
      return answers.every(({ status, body }) => status === 401 && body.code === 'invalid_token');
    }, 1_000);

  describe('of keys,', () => {
    it('lists them without their secrets, rotates, and disables, in words', async () => {
      const client = await login();
      const rotated = await text(['key', 'rotate', 'acme']);
      const kid = uuid.exec(rotated)?.[0] ?? '';
      expect(rotated).to.equal(`acme signs with ${kid} now.\n`);
      expect(await works(client)).to.equal(true);
      const [list, disabled] = [await text(['key', 'list', 'acme']), await text(['key', 'disable', 'acme', kid])];
      const lines = list.trimEnd().split('\n');
      expect(lines[0]).to.match(/^kid +status +createdAt +retiredAt$/);
      expect(lines).to.have.length(3);
      expect(lines[1]).to.match(new RegExp(`^${uuid.source} +retiring +\\S+ +\\S+Z$`));
      expect(lines[2]).to.match(new RegExp(`^${kid} +active +\\S+ +–$`));
      expect(disabled).to.equal(`${kid} is disabled: its tokens are refused.\n`);
      expect(await works(client), 'of the key before it').to.equal(true);
    });

    it('the same as JSON, obeyed by the running service within 1 s', async () => {
      const before = await json<Key[]>(['key', 'list', 'acme']);
      for (const key of before) expect(key).to.have.all.keys('kid', 'status', 'createdAt', 'retiredAt');
      const client = await login();
      const { kid, ...others } = await json<{ kid: string }>(['key', 'rotate', 'acme']);
      expect([others, before.some(key => key.kid === kid)]).to.deep.equal([{}, false]);
      const kidOf = ({ tokens }: Client): string =>
        JSON.parse(Buffer.from(tokens?.accessToken.split('.')[0] ?? '', 'base64url').toString()).kid;
      const next = await eventually(async () => {
        const found = await login();
        return kidOf(found) === kid && found;
      }, 1_000);
      expect(await works(client)).to.equal(true);
      expect(await json(['key', 'disable', 'acme', kid])).to.deep.equal({ kid, status: 'disabled' });
      await expectEnded(next);
      expect(await works(client), 'of the key before it').to.equal(true);
      const [{ active } = { active: '' }] = await controlSql<{ active: string }>(
        world,
        `select count(*) as active from signing_keys where status = 'active' and tenant_id = ?`,
        [world.acme.id],
      );
      expect(active).to.equal('1');
      expect(await works(await login())).to.equal(true);
    });

    it('cannot change them with a wrong master key, and the service goes on', async () => {
      const before = await controlSql(world, 'select kid, status from signing_keys order by kid');
      const [{ kid } = { kid: '' }] = await controlSql<{ kid: string }>(
        world,
        `select kid from signing_keys where status = 'active' and tenant_id = ?`,
        [world.acme.id],
      );
      const wrong = { MASTER_KEY: randomBytes(32).toString('base64') };
      const refused = await Promise.all([
        tenant(['key', 'rotate', 'acme'], wrong),
        tenant(['key', 'disable', 'acme', kid], wrong),
      ]);
      for (const { code, stdout, stderr } of refused) {
        expect({ code, stdout }).to.deep.equal({ code: 1, stdout: '' });
        expectOneLine(stderr);
        expect(stderr).to.match(/MASTER_KEY/);
      }
      expect(await controlSql(world, 'select kid, status from signing_keys order by kid')).to.deep.equal(before);
      expect(await works(await login())).to.equal(true);
    });
  });

  describe('of sessions,', () => {
    it('lists the open ones, of a tenant or a user, the newest first, in words and as JSON', async () => {
      const one = await person();
      const [idle, first, second] = [await login(one), await login(one), await login(one)];
      await controlSql(world, `update sessions set refreshed_at = now() - interval '8 days' where id = ?`, [sid(idle)]);
      const foreign = await world.login(world.globex);
      const [all, table, none] = await Promise.all([
        json<Record<string, string>[]>(['session', 'list', 'acme']),
        text(['session', 'list', 'acme', one.email.toUpperCase()]),
        text(['session', 'list', 'acme', (await person()).email]),
      ]);
      const own = all.filter(({ email }) => email === one.email);
      expect(own.map(({ id }) => id)).to.deep.equal([sid(second), sid(first)]);
      for (const session of all) expect(session).to.have.all.keys('id', 'email', 'createdAt', 'refreshedAt');
      expect(all.map(({ id }) => id)).to.not.include(sid(foreign));
      const lines = table.trimEnd().split('\n');
      expect(lines[0]).to.match(/^id +email +createdAt +refreshedAt$/);
      expect(lines.slice(1).map(line => line.split(' ')[0])).to.deep.equal([sid(second), sid(first)]);
      expect(none).to.equal('No open sessions.\n');
    });

    it('ends one, or all of a user, which the running service obeys within 1 s; others go on', async () => {
      const [one, two] = [await person(), await person()];
      const [lost, also, kept] = [await login(one), await login(one), await login(one)];
      const [other, third, admin] = [await login(two), await login(two), await login()];
      for (const client of [lost, also, kept, other, third, admin]) expect(await works(client)).to.equal(true);
      const revoke = ['session', 'revoke', 'acme'];
      const said = await Promise.all([
        json([...revoke, sid(lost)]),
        json([...revoke, '--user', two.email]),
        text([...revoke, sid(also)]),
      ]);
      expect(said).to.deep.equal([
        { revoked: sid(lost) },
        { revoked: two.email },
        'Revoked: refused everywhere within a second.\n',
      ]);
      await expectEnded(lost, also, other, third);
      for (const client of [kept, admin]) expect(await works(client)).to.equal(true);
      const [row] = await controlSql(world, 'select distinct revoked_reason from sessions where user_id = ?', [two.id]);
      expect(row).to.deep.equal({ revoked_reason: 'operator' });
    });
  });

  describe('of old clients,', () => {
    const generate = ({ id, secret }: OldProgram) =>
      world.anonymous.get('/api/Data/GenerateToken', {
        Authorization: `Basic ${Buffer.from(`${id}:${secret}`).toString('base64')}`,
      });

    it('adds one, whose secret is shown once and works at once; lists; and revokes it with its tokens, within 1 s', async () => {
      const [user, other] = [await person(), await person()];
      const [none, added, words] = await Promise.all([
        text(['client', 'list', 'globex']),
        json<OldProgram>(['client', 'add', 'acme', user.email, '--name', 'Price list']),
        text(['client', 'add', 'acme', other.email, '--name', 'Till']),
      ]);
      expect(none).to.equal('No API clients.\n');
      expect(added).to.have.all.keys('id', 'secret');
      const [, id = '', secret = ''] = /^id +(client-[0-9a-f]{16})\nsecret +([\w-]{43})\n$/.exec(words) ?? [];
      const programs = [added, { id, secret }];
      const clients: Client[] = [];
      for (const program of programs) {
        const { status, body } = await generate(program);
        expect(status).to.equal(200);
        secrets.add(program.secret).add(body.token);
        clients.push(world.anonymous.withToken(body.token));
        expect(await works(clients.at(-1)!)).to.equal(true);
        await expectNotStored(world, [program.secret, body.token]);
      }

      const [listed, table] = await Promise.all([
        json<Record<string, unknown>[]>(['client', 'list', 'acme']),
        text(['client', 'list', 'acme']),
      ]);
      const found = listed.find(each => each.id === added.id);
      expect(found).to.include({ name: 'Price list', user: user.email, state: 'active', tokens: 1 });
      expect(found).to.have.all.keys('id', 'name', 'user', 'state', 'tokens', 'uses', 'lastUsedAt');
      expect(table).to.match(/^id +name +user +state +tokens +uses +lastUsedAt$/m);
      expect(table).to.match(new RegExp(`^${id} +Till +${other.email} +active +1 `, 'm'));
      for (const shown of [JSON.stringify(listed), table])
        for (const kept of secrets) expect(shown.includes(kept)).to.equal(false);

      const said = await Promise.all([
        json(['client', 'revoke', 'acme', added.id]),
        text(['client', 'revoke', 'acme', id]),
      ]);
      expect(said).to.deep.equal([{ id: added.id, state: 'revoked' }, `${id} is revoked, and so are its tokens.\n`]);
      await expectEnded(...clients);
      for (const program of programs) expect((await generate(program)).status).to.equal(401);
      const again = await tenant(['client', 'revoke', 'acme', id]);
      expect({ code: again.code, stdout: again.stdout }).to.deep.equal({ code: 1, stdout: '' });
      expectOneLine(again.stderr);
    });
  });

  describe('of users,', () => {
    it('shuts one out within 1 s, all sessions, and lets them in again with a new login', async () => {
      const [one, two] = [await person(), await person()];
      const clients = [await login(one), await login(two)];
      const other = await login();
      for (const client of clients) expect(await works(client)).to.equal(true);
      const said = await Promise.all([
        json(['user', 'disable', 'acme', one.email]),
        text(['user', 'disable', 'acme', two.email.toUpperCase()]),
      ]);
      expect(said).to.deep.equal([
        { guid: one.guid, email: one.email, state: 'disabled' },
        `${two.email} is disabled.\n`,
      ]);
      await expectEnded(...clients);
      for (const { email, password } of [one, two]) {
        const refused = await world.anonymous.post(
          '/api/v1/auth/login',
          { email, password },
          { 'X-Tenant': world.acme.guid },
        );
        expect(refused.status).to.equal(401);
      }
      const saidThen = await Promise.all([
        json(['user', 'enable', 'acme', one.email]),
        text(['user', 'enable', 'acme', two.email]),
      ]);
      expect(saidThen).to.deep.equal([
        { guid: one.guid, email: one.email, state: 'enabled' },
        `${two.email} is enabled.\n`,
      ]);
      for (const who of [one, two]) expect(await works(await login(who))).to.equal(true);
      for (const client of clients) expect((await client.get(path)).status, 'the session of before').to.equal(401);
      expect(await works(other)).to.equal(true);
    });
  });

  it('is told in one line what failed, with 1, and nothing was changed', async () => {
    const foreign = await world.login(world.globex);
    const [key] = await controlSql<{ kid: string }>(world, 'select kid from signing_keys where tenant_id = ?', [
      world.globex.id,
    ]);
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
      ['key', 'disable', 'acme', 'no-such-key'],
      ['key', 'disable', 'acme', key?.kid ?? ''],
      ['session', 'list', 'acme', 'nobody@acme.test'],
      ['session', 'revoke', 'acme', randomUUID()],
      ['session', 'revoke', 'acme', 'no-uuid'],
      ['session', 'revoke', 'acme', sid(foreign)],
      ['session', 'revoke', 'acme', '--user', world.globex.admin.email],
      ['client', 'add', 'acme', 'nobody@acme.test', '--name', 'x'],
      ['client', 'revoke', 'acme', 'client-0'],
      ['user', 'disable', 'acme', 'nobody@acme.test'],
    ];
    await Promise.all(
      failing.map(async (each, at) => {
        const args = at % 2 ? each : [...each, '--json'];
        const { code, stdout, stderr } = await tenant(args);
        expect({ code, stdout }, args.join(' ')).to.deep.equal({ code: 1, stdout: '' });
        expectOneLine(stderr);
      }),
    );
    expect(await state()).to.deep.equal(before);
    expect(await works(foreign)).to.equal(true);
  });

  it('is told of wrong usage with 2, before anything is done', async () => {
    const wrong = [
      ['session', 'revoke', 'acme'],
      ['session', 'revoke', 'acme', randomUUID(), '--user', world.acme.admin.email],
      ['client', 'add', 'acme', world.acme.admin.email],
      ['key', 'melt', 'acme'],
    ];
    await Promise.all(
      wrong.map(async args => {
        const { code, stdout, stderr } = await tenant(args);
        expect({ code, stdout }, args.join(' ')).to.deep.equal({ code: 2, stdout: '' });
        expect(stderr).not.to.equal('');
      }),
    );
    expect(await works(await login())).to.equal(true);
  });

  describe('seals again,', () => {
    it('also when the master key is the same, without a pause of the service', async () => {
      const client = await login();
      const before = await controlSql(world, 'select secret from signing_keys order by kid');
      const { code, stdout, stderr } = await runScript('scripts/control.ts', ['reseal'], world.environment);
      expect({ code, stderr }).to.deep.equal({ code: 0, stderr: '' });
      expect(stdout).to.match(/^\d+ secrets are sealed under MASTER_KEY\.\n$/);
      expect(await controlSql(world, 'select secret from signing_keys order by kid')).to.not.deep.equal(before);
      expect(await works(client)).to.equal(true);
      expect(await works(await login())).to.equal(true);
    });
  });

  describe('is told nothing in the log of the service', () => {
    it('that is secret', () => {
      expect(secrets.size).to.be.above(30);
      expectNotLogged(world, [...secrets, world.acme.admin.password]);
    });
  });

  /** One line for a person: no stack, nothing secret. */
  function expectOneLine(line: string): void {
    expect(line.trimEnd()).to.match(/\S/).and.not.include('\n');
    expect(line).not.to.match(/\bat .*\.ts|node_modules|:\/\/\S+@/);
    expect(line.includes(world.environment.MASTER_KEY ?? '-')).to.equal(false);
  }
});
