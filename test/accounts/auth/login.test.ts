import { randomUUID } from 'node:crypto';
import { availableParallelism } from 'node:os';
import { hash } from '@node-rs/argon2';
import { expect } from 'chai';
import type { QueryConfig } from 'pg';
import { createPasswords } from '../../../src/accounts/auth/passwords.ts';
import { readInstallationIdentity } from '../../../src/control/installation-id.ts';
import { accessTokenLifetimeSeconds } from '../../../src/control/token-lifetime.ts';
import { SessionClient } from '../../../src/lib/postgres/session-client.ts';
import type { ApiResponse } from '../../support/client.ts';
import { announcedMs, eventually } from '../../support/eventually.ts';
import { lockWaiters } from '../../support/lock-waiters.ts';
import { use } from '../../support/use.ts';
import { controlSql, createWorld, sql } from '../../support/world.ts';
import { claimsOf } from './forge.ts';
import { comparable } from './responses.ts';
import { addSampleUser, type SampleUser } from './sample-users.ts';

const path = '/api/v1/auth/login';
const kelvin = '\u212a'; // the Kelvin sign: looks like K, and NFC turns it into K

/** The tables of which a statement of a login reads; the values of others may be the same. */
const accountTables = /\b(users|sessions|roles|factors|recovery_codes|wrong_codes|login\w+)\b/;

/**
 * Records the names of the statements with one of these values that this process sends to
 * PostgreSQL: a login that did more for one account would take longer.
 */
async function recordStatements<Result>(
  values: readonly unknown[],
  work: () => Promise<Result>,
): Promise<{ result: Result; statements: string[] }> {
  const { query } = SessionClient.prototype;
  const statements: string[] = [];
  SessionClient.prototype.query = function recorded(this: SessionClient, ...args: unknown[]) {
    const [sent] = args as [QueryConfig<unknown[]>];
    const isOfAccount = sent.values?.some?.(value => values.includes(value));
    if (isOfAccount && accountTables.test(sent.text)) statements.push(sent.name ?? '');
    return Reflect.apply(query, this, args);
  } as typeof query;

  try {
    return { result: await work(), statements };
  } finally {
    SessionClient.prototype.query = query;
  }
}

describe('login', () => {
  const world = use(() => createWorld({}, createPasswords()));
  let known: SampleUser;
  let unconfirmed: SampleUser;
  let disabled: SampleUser;
  let foreign: SampleUser;
  let imported: SampleUser;

  const login = (credentials: unknown, tenant = world.acme): Promise<ApiResponse> =>
    world.anonymous.post(path, credentials, { 'X-Tenant': tenant.guid });
  const sessionOf = (response: ApiResponse): string =>
    String(claimsOf(response.body.accessToken).sid);

  before(async () => {
    known = await addSampleUser(world, world.acme);
    unconfirmed = await addSampleUser(world, world.acme);
    disabled = await addSampleUser(world, world.acme);
    foreign = await addSampleUser(world, world.globex);
    imported = await addSampleUser(world, world.acme);
    await controlSql(world, 'update users set confirmed_at = null where id = ?', [unconfirmed.id]);
    await controlSql(world, 'update users set disabled_at = now() where id = ?', [disabled.id]);
    await controlSql(world, 'update users set password_hash = ? where id = ?', [
      '5f4dcc3b5aa765d61d8327deb882cf99', // as another system may have stored it
      imported.id,
    ]);
  });

  describe('successful login', () => {
    it('the response to a login has the two tokens and the entity type, and nothing else', async () => {
      const { status, body, headers } = await login(known);
      expect(status).to.equal(200);
      expect(body).to.have.all.keys('accessToken', 'refreshToken', 'entityType');
      expect(body.accessToken).to.match(/^[\w-]+\.[\w-]+\.[\w-]+$/);
      expect(body.refreshToken).to.match(/^[\w-]{70}$/);
      expect(body.entityType).to.equal(null);
      expect(headers.get('cache-control')).to.equal('no-store');
      expect(headers.get('set-cookie')).to.equal(null);
    });

    it('the access token has the user, tenant, session and the permissions of the role', async () => {
      const { body } = await login(known);
      const claims = claimsOf(body.accessToken);
      const { iat, exp, jti, sid, permissions, ...others } = claims as Record<string, number> & {
        permissions: string[];
      };

      expect(others).to.deep.equal({
        iss: (await readInstallationIdentity(world.control)).id,
        aud: 'sales-back-office',
        sub: known.guid,
        user_guid: known.guid,
        tenant_id: world.acme.id,
        tenant_guid: world.acme.guid,
        email: known.email,
        entity_type: null,
      });

      expect(exp! - iat!).to.equal(accessTokenLifetimeSeconds);
      expect(Math.abs(Date.now() / 1000 - iat!)).to.be.below(60);
      expect(permissions)
        .to.be.an('array')
        .that.includes('full.read')
        .and.not.includes('full.manage');

      const rows = await controlSql(
        world,
        'select user_id, tenant_id, revoked_at from sessions where id = ?',
        [sid],
      );
      expect(rows.map(row => JSON.stringify(row))).to.deep.equal([
        JSON.stringify({
          user_id: String(known.id),
          tenant_id: String(world.acme.id),
          revoked_at: null,
        }),
      ]);
      expect(jti).to.be.a('string').and.not.equal(sid);
    });

    for (const type of ['supplier', 'customer']) {
      it(`the entity type of a user who belongs to a ${type} is ${type}`, async () => {
        const [entity] = await sql<{ id: string }>(
          world.acme,
          'insert into entities (name, entity_type) values ($1, $1) returning id',
          [type],
        );
        const person = await addSampleUser(world, world.acme, {
          scope: 'Self',
          entityId: Number(entity?.id),
        });

        const { body } = await login(person);
        expect(body.entityType).to.equal(type);
        expect(claimsOf(body.accessToken).entity_type).to.equal(type);
      });
    }

    it('the entity type is null for a user whose entity was deleted', async () => {
      const person = await addSampleUser(world, world.acme);
      await controlSql(
        world,
        'update users set entity_id = 999999, entity_since = now() where id = ?',
        [person.id],
      );
      expect((await login(person)).body.entityType).to.equal(null);
    });

    it('each login opens a new session, whatever session id or permissions the client sends', async () => {
      const chosen = randomUUID();
      const sessions = new Set<string>();
      const tokens = new Set<string>();

      for (let i = 0; i < 3; i++) {
        const response = await world.anonymous.post(
          path,
          {
            ...known,
            sid: chosen,
            sessionId: chosen,
            id: chosen,
            jti: chosen,
            permissions: ['full.manage'],
            scope: 'All',
          },
          { 'X-Tenant': world.acme.guid, Cookie: `sid=${chosen}`, Authorization: 'Bearer x' },
        );

        expect(response.status).to.equal(200);
        expect(claimsOf(response.body.accessToken).permissions).to.not.include('full.manage');
        sessions.add(sessionOf(response));
        tokens.add(response.body.refreshToken);
      }

      expect(sessions).to.have.property('size', 3);
      expect(tokens).to.have.property('size', 3);
      expect(sessions.has(chosen)).to.equal(false);
    });

    it('a user has at most 20 sessions: the 21st login ends the oldest', async () => {
      const person = await addSampleUser(world, world.acme);
      const logins: ApiResponse[] = [];
      for (let i = 0; i < 20; i++) logins.push(await login(person));
      const me = ({ body }: ApiResponse) =>
        world.anonymous.withToken(body.accessToken).get('/api/v1/auth/me');
      expect((await me(logins[0]!)).status).to.equal(200);

      logins.push(await login(person));
      await eventually(async () => (await me(logins[0]!)).status === 401, announcedMs);

      const refreshed = await world.anonymous.post(
        '/api/v1/auth/refresh',
        { refreshToken: logins[0]!.body.refreshToken },
        { 'X-Tenant': world.acme.guid },
      );
      expect(refreshed.status).to.equal(401);
      for (const later of logins.slice(1)) expect((await me(later)).status).to.equal(200);
    });

    it('a login deletes the expired sessions of the user', async () => {
      const person = await addSampleUser(world, world.acme);
      await controlSql(
        world,
        `insert into sessions (tenant_id, user_id, created_at, refreshed_at)
         select tenant_id, id, now() - interval '31 days', now() from users where id = ?`,
        [person.id],
      );

      expect((await login(person)).status).to.equal(200);

      const sessions = await controlSql(
        world,
        "select created_at < now() - interval '1 hour' as old from sessions where user_id = ?",
        [person.id],
      );
      expect(sessions).to.deep.equal([{ old: false }]);
    });

    it('a session that ends during a login keeps the reason of its end', async () => {
      const person = await addSampleUser(world, world.acme);
      for (let i = 0; i < 20; i++) await login(person);
      const oldest = '(select id from sessions where user_id = ? order by created_at limit 1)';

      const { status } = await during(
        `update sessions set revoked_at = now(), revoked_reason = 'refresh_reuse' where id = ${oldest}`,
        [person.id],
        () => login(person),
      );
      expect(status).to.equal(200);

      const reasons = await controlSql(
        world,
        'select revoked_reason from sessions where user_id = ? and revoked_at is not null',
        [person.id],
      );
      expect(reasons).to.deep.equal([{ revoked_reason: 'refresh_reuse' }]);
    });
  });

  describe('failed login', () => {
    it('a failed login gets the same response for every reason', async () => {
      const expected = comparable(
        await login({ email: 'unknown@acme.test', password: 'wrong password' }),
      );
      expect(expected).to.include({ status: 401 });
      expect(JSON.parse(String(expected.body))).to.include({
        code: 'invalid_credentials',
        status: 401,
      });

      const reasons: Record<string, { email: string; password: string }> = {
        'wrong password': { ...known, password: 'wrong password' },
        'password in capitals': { ...known, password: known.password.toUpperCase() },
        'the stored hash as password': { ...known, password: await storedHash(known) },
        'password of another user': { ...known, password: foreign.password },
        'longer than any password': { ...known, password: 'x'.repeat(1_000) },
        'a lone surrogate': { ...known, password: 'wrong \ud800 password' },
        'a NUL': { ...known, password: `${known.password}\0` },
        unconfirmed,
        disabled,
        'user of another tenant': foreign,
        'SQL in an address': { email: `'or(1=1)--@acme.test`, password: 'wrong password' },
        'a wildcard': { email: '%@acme.test', password: known.password },
        'hash of another kind': { ...imported, password: 'password' },
        'hash of another kind as password': {
          ...imported,
          password: '5f4dcc3b5aa765d61d8327deb882cf99',
        },
      };

      for (const [reason, credentials] of Object.entries(reasons)) {
        expect(comparable(await login(credentials)), reason).to.deep.equal(expected);
      }

      expect((await login(foreign, world.globex)).status, 'in the tenant of the user').to.equal(
        200,
      );
    });

    it('a failed login opens no session', async () => {
      const count = async () =>
        (await controlSql<{ count: string }>(world, 'select count(*) from sessions'))[0]?.count;
      const before = await count();
      for (const person of [unconfirmed, disabled, { ...known, password: 'wrong password' }]) {
        await login(person);
      }
      expect(await count()).to.equal(before);
    });

    it('a login with out-of-bounds parameters in the stored hash fails like a wrong password', async () => {
      const person = await addSampleUser(world, world.acme);
      const hash = await storedHash(person);
      const expected = comparable(await login({ email: person.email, password: 'wrong password' }));

      const changes: [from: string, to: string][] = [
        ['m=19456', 'm=16777216'],
        ['m=19456', 'm=65537'],
        ['m=19456', 'm=7'],
        ['m=19456,t=2,p=1', 'm=8,t=2,p=4'],
        ['t=2', 't=7'],
        ['t=2', 't=0'],
        ['t=2', 't=4294967295'],
        ['p=1', 'p=0'],
        ['p=1', 'p=5'],
        ['v=19', 'v=16'],
        ['v=19$', ''],
        ['argon2id', 'argon2i'],
        [hash.slice(-3), '!!!'],
        [hash.slice(-3), '/x'],
      ];

      for (const [from, to] of changes) {
        await controlSql(world, 'update users set password_hash = ? where id = ?', [
          hash.replace(from, to),
          person.id,
        ]);
        const before = world.passwords.usage.hashed;

        expect(comparable(await login(person)), `${from} → ${to}`).to.deep.equal(expected);
        expect(world.passwords.usage.hashed - before, `${from} → ${to}`).to.equal(1);
      }

      await controlSql(world, 'update users set password_hash = ? where id = ?', [hash, person.id]);
      expect((await login(person)).status).to.equal(200);
    });

    it('a failed login computes one password hash for every reason', async () => {
      const wrong = (person: SampleUser) => ({ ...person, password: 'wrong password' });
      const outdated = await addSampleUser(world, world.acme);
      await controlSql(
        world,
        'update users set confirmed_at = null, password_hash = ? where id = ?',
        [await outdatedHash(outdated.password), outdated.id],
      );

      const reasons = {
        wrong: wrong(known),
        unknown: { email: `${randomUUID()}@acme.test`, password: 'wrong password' },
        unconfirmed,
        'unconfirmed, with an outdated hash': outdated,
        disabled,
        foreign,
        'hash of another kind': wrong(imported),
      };

      for (const [reason, credentials] of Object.entries(reasons)) {
        const before = world.passwords.usage.hashed;
        expect((await login(credentials)).status, reason).to.equal(401);
        expect(world.passwords.usage.hashed - before, reason).to.equal(1);
      }
    });

    it('a wrong password gets the same response after the same work, whatever second factor its account has or needs', async () => {
      const add = async (change: string, hasEmail = false): Promise<SampleUser> => {
        const person = await addSampleUser(world, world.acme);
        await controlSql(world, change, [person.id, ...(hasEmail ? [person.email] : [])]);
        return person;
      };
      const strict = `
        with strict as (
          insert into roles (tenant_id, name, permissions, requires_second_factor)
          select tenant_id, 'Strict', '{}', true from users where id = ? returning tenant_id, id)
        update users u set role_id = strict.id from strict where u.email = ?`;
      const factor = `
        insert into factors (tenant_id, user_id, kind, name, confirmed_at, held_at)
        select tenant_id, id, 'passkey', 'x', now(), now() from users where id = ?`;
      const lost = 'update users set must_set_up_factor = true where id = ?';
      const accounts = {
        unknown: { email: `${randomUUID()}@acme.test` },
        known,
        disabled,
        unconfirmed,
        'with a second factor': await add(factor),
        'with a second factor that is lost': await add(lost),
        'of a role that requires one': await add(strict, true),
      };
      const idsOf = (person: { email: string; id?: number }) =>
        person.id === undefined ? [] : [person.id, String(person.id)];
      const expected = comparable(
        await login({ email: accounts.unknown.email, password: 'wrong password' }),
      );

      for (const [account, person] of Object.entries(accounts)) {
        const { email } = person;
        const before = world.passwords.usage.hashed;
        const { result, statements } = await recordStatements([email, ...idsOf(person)], () =>
          login({ email, password: 'wrong password' }),
        );

        expect(comparable(result), account).to.deep.equal(expected);
        expect(world.passwords.usage.hashed - before, account).to.equal(1);
        expect(statements, account).to.deep.equal(['login']);
      }
    });
  });

  describe('e-mail address of a login', () => {
    before(async () => {
      for (const email of [
        'kim@acme.test',
        'jos\u00e9@acme.test',
        'istvan@acme.test',
        'back`tick@acme.test',
      ]) {
        await addSampleUser(world, world.acme, { email, password: 'the same for all' });
      }
    });
    const status = async (email: string) =>
      (await login({ email, password: 'the same for all' })).status;

    it('an address matches regardless of surrounding white space, ASCII case and composed accents', async () => {
      for (const email of [
        'kim@acme.test',
        'KIM@Acme.TEST',
        '  kim@acme.test \n',
        'jos\u00e9@acme.test',
        'jose\u0301@ACME.test',
      ]) {
        expect(await status(email), email).to.equal(200);
      }
    });

    it('no look-alike of an address matches its user', async () => {
      const lookAlikes = [
        `${kelvin}im@acme.test`,
        `${kelvin.toLowerCase()}im@acme.test`.replace('k', kelvin),
        'k\u0131m@acme.test', // dotless i
        'k\u0130m@acme.test', // dotted capital I, whose lower case begins with i
        'JOS\u00c9@acme.test', // only ASCII letters are folded
        'jose@acme.test',
        '\u0131stvan@acme.test',
        'i\u017ftvan@acme.test', // long s, whose upper case is S
        'back\u1feftick@acme.test', // Greek varia, which NFC turns into a backtick
        '\uff4bim@acme.test',
        'kim+1@acme.test',
        'k.im@acme.test',
      ];

      for (const email of lookAlikes) {
        expect(await status(email), JSON.stringify(email)).to.equal(401);
      }

      const impossible = [
        'kim\uff20acme.test',
        'k\u200bim@acme.test',
        'kim@acme.test.',
        '%',
        `' or 1=1 --`,
      ];
      for (const email of impossible) {
        expect(await status(email), JSON.stringify(email)).to.equal(400);
      }
    });
  });

  describe('password of a login', () => {
    /**
     * Adds a user with this password; returns a function that logs in with another spelling and
     * returns the status.
     */
    const withPassword = async (
      password: string,
    ): Promise<(spelling: string) => Promise<number>> => {
      const person = await addSampleUser(world, world.acme, { password });
      return async spelling => (await login({ email: person.email, password: spelling })).status;
    };

    it('a new password has 15 to 128 characters, however many bytes each character has', async () => {
      for (const password of [letters(15), keys(15), letters(128), keys(128)]) {
        expect(await (await withPassword(password))(password), password).to.equal(200);
      }

      for (const password of [letters(14), keys(14), letters(129), keys(129)]) {
        const message = await addSampleUser(world, world.acme, { password }).then(
          () => undefined,
          (error: Error) => error.message,
        );
        expect(message, password).to.contain('characters');
      }
    });

    it('every character of a long password counts, also after the 72nd', async () => {
      const loginStatus = await withPassword(`${'x'.repeat(72)}a${'y'.repeat(50)}`);
      expect(await loginStatus(`${'x'.repeat(72)}b${'y'.repeat(50)}`)).to.equal(401);
      expect(await loginStatus('x'.repeat(72))).to.equal(401);
      expect(await loginStatus(`${'x'.repeat(72)}a${'y'.repeat(49)}`)).to.equal(401);
      expect(await loginStatus(`${'x'.repeat(72)}a${'y'.repeat(50)}`)).to.equal(200);
    });

    it('a password matches in any compatible Unicode form', async () => {
      const loginStatus = await withPassword('caf\u00e9 \ufb01ne days \u212b\u2460');
      for (const same of [
        'cafe\u0301 fine days \u00c51',
        'caf\u00e9 \ufb01ne days \u212b\u2460',
        '\uff43af\u00e9 fine days A\u030a1',
      ]) {
        expect(await loginStatus(same), JSON.stringify(same)).to.equal(200);
      }
      expect(await loginStatus('cafe fine days A1')).to.equal(401);
    });

    it('white space and letter case in a password matter', async () => {
      const loginStatus = await withPassword(' Leading spaces');

      for (const other of [
        'Leading spaces',
        ' Leading spaces ',
        '  Leading spaces',
        ' leading spaces',
        ' Leadingspaces',
      ]) {
        expect(await loginStatus(other), JSON.stringify(other)).to.equal(401);
      }

      expect(await loginStatus(' Leading spaces')).to.equal(200);
    });
  });

  it('the response to an invalid login body names the invalid fields and repeats none of their values', async () => {
    const secret = 'do not repeat me';
    const cases: [body: unknown, fields: string[]][] = [
      [{}, ['email', 'password']],
      [undefined, ['email', 'password']],
      [{ email: 'a@b.test' }, ['password']],
      [{ password: secret }, ['email']],
      [{ email: '', password: '' }, ['email', 'password']],
      [{ email: '   ', password: secret }, ['email']],
      [{ email: 7, password: secret }, ['email']],
      [{ email: ['a@b.test'], password: secret }, ['email']],
      [{ email: { $ne: null }, password: { $ne: secret } }, ['email', 'password']],
      [{ email: null, password: null }, ['email', 'password']],
      [{ email: 'a@b.test', password: [secret] }, ['password']],
      [{ email: 'a@b.test', password: true }, ['password']],
      [{ email: 'a\0@b.test', password: secret }, ['email']],
      [{ email: 'a\ud800@b.test', password: secret }, ['email']],
      [{ email: `${'x'.repeat(255)}@b.test`, password: secret }, ['email']],
      [{ Email: 'a@b.test', PASSWORD: secret }, ['email', 'password']],
    ];

    for (const [body, fields] of cases) {
      const response = await login(body);
      expect(response.status, JSON.stringify(body)).to.equal(400);
      expect(response.body.code, JSON.stringify(body)).to.equal('validation_failed');
      expect(Object.keys(response.body.errors).sort(), JSON.stringify(body)).to.deep.equal(fields);
      expect(JSON.stringify(response.body)).to.not.contain(secret);
      expect(response.headers.get('cache-control')).to.equal('no-store');
    }

    expect(
      world.logs.some(line => line.includes(secret)),
      'in the log',
    ).to.equal(false);
  });

  it('each of many concurrent logins succeeds or gets 503 with Retry-After, and delays no other request', async () => {
    // Hashes that take far longer than a request takes to arrive, on a busy machine too: about
    // as long as three in production.
    const slower = await createWorld(
      {},
      createPasswords(undefined, { memoryCost: 58_368, timeCost: 2 }),
    );
    const password = keys(128);
    const person = await addSampleUser(slower, slower.acme, { password });
    const caller = await slower.login(slower.acme);
    const logIn = () =>
      slower.anonymous.post(
        path,
        { email: person.email, password },
        { 'X-Tenant': slower.acme.guid },
      );

    // More logins than the hash queue takes (64 waiting, and one running per thread), so some
    // must be rejected.
    const crowd = Array.from({ length: 64 + 48 + availableParallelism() }, logIn);
    let waiting = true;
    const all = Promise.all(crowd).finally(() => {
      waiting = false;
    });

    let meanwhile = 0;
    while (waiting) {
      expect((await caller.get('/api/v1/auth/me')).status).to.equal(200);
      meanwhile++;
    }

    const responses = await all;
    const rejected = responses.filter(({ status }) => status !== 200);
    for (const { status, body, headers } of rejected) {
      expect(status).to.equal(503);
      expect(body.code).to.equal('overloaded');
      expect(Number(headers.get('retry-after'))).to.be.at.least(1);
    }

    expect(rejected.length, 'rejected logins').to.be.within(1, 64 + 20);
    expect(meanwhile, 'other requests during the logins').to.be.above(10);
    expect((await logIn()).status, 'afterwards').to.equal(200);

    const [sessions] = await controlSql<{ count: string }>(
      slower,
      'select count(*) from sessions where user_id = ? and revoked_at is null',
      [person.id],
    );
    expect(sessions?.count).to.equal('20');
    await slower.close();
  });

  describe('outdated password hash', () => {
    it('a login with an outdated hash succeeds and stores a hash with the current parameters', async () => {
      const person = await addSampleUser(world, world.acme);
      await controlSql(world, 'update users set password_hash = ? where id = ?', [
        await outdatedHash(person.password),
        person.id,
      ]);

      expect((await login({ ...person, password: 'wrong password' })).status).to.equal(401);
      expect(await storedHash(person)).to.match(/^\$argon2id\$v=19\$m=8192,t=1,p=1\$/);
      expect((await login(person)).status).to.equal(200);

      const renewed = await storedHash(person);
      expect(renewed).to.match(/^\$argon2id\$v=19\$m=19456,t=2,p=1\$/);
      expect((await login(person)).status).to.equal(200);
      expect(await storedHash(person), 'a current hash stays').to.equal(renewed);
    });

    it('the rehash never restores a password that was changed during the login', async () => {
      const person = await addSampleUser(world, world.acme);
      await controlSql(world, 'update users set password_hash = ? where id = ?', [
        await outdatedHash(person.password),
        person.id,
      ]);
      const changed = await world.passwords.hash('changed meanwhile');
      const { status } = await duringChange(person, () => login(person), changed);
      expect(status).to.equal(401);
      expect(await storedHash(person)).to.equal(changed);
    });
  });

  it('a login with the old password that runs during a password change opens no session', async () => {
    const person = await addSampleUser(world, world.acme);
    const changed = await world.passwords.hash('changed meanwhile');

    const { status, body } = await duringChange(person, () => login(person), changed);
    expect(status).to.equal(401);
    expect(body.code).to.equal('invalid_credentials');

    const sessions = await controlSql(
      world,
      'select id from sessions where user_id = ? and revoked_at is null',
      [person.id],
    );
    expect(sessions).to.deep.equal([]);
  });

  async function storedHash({ id }: SampleUser): Promise<string> {
    const [row] = await controlSql<{ password_hash: string }>(
      world,
      'select password_hash from users where id = ?',
      [id],
    );
    return row?.password_hash ?? '';
  }

  function duringChange(
    person: SampleUser,
    call: () => Promise<ApiResponse>,
    passwordHash: string,
  ): Promise<ApiResponse> {
    return during(
      'update users set password_hash = ? where id = ?',
      [passwordHash, person.id],
      call,
    );
  }

  /**
   * Starts `call` during an uncommitted change, and commits the change once the call waits for
   * its lock.
   */
  async function during(
    change: string,
    values: unknown[],
    call: () => Promise<ApiResponse>,
  ): Promise<ApiResponse> {
    return world.control.em
      .fork()
      .transactional(async em => {
        await em.execute(change, values);
        const running = call();
        await eventually(async () => (await em.execute(lockWaiters)).length > 0);
        return { running };
      })
      .then(({ running }) => running);
  }
});

/** Returns a hash with the parameters of an earlier version. */
function outdatedHash(password: string): Promise<string> {
  return hash(password, { algorithm: 2, memoryCost: 8_192, timeCost: 1, parallelism: 1 });
}

/** Returns a text of `count` characters of one byte each. */
function letters(count: number): string {
  return Array.from({ length: count }, (_, i) => String.fromCodePoint(0x61 + ((i * 7) % 26))).join(
    '',
  );
}

/** Returns a text of `count` characters of four bytes each. */
function keys(count: number): string {
  return Array.from({ length: count }, (_, i) =>
    String.fromCodePoint(0x1f511 + ((i * 7) % 26)),
  ).join('');
}
