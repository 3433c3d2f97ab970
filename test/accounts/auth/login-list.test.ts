import { expect } from 'chai';
import type { ApiResponse, Client } from '../../support/client.ts';
import { eventually } from '../../support/eventually.ts';
import { lockWaiters } from '../../support/lock-waiters.ts';
import { runCommand } from '../../support/run-command.ts';
import {
  controlSql,
  type TestTenant,
  useLogin,
  useTwoProcesses,
  useWorld,
} from '../../support/world.ts';
import { insertWithoutTriggers } from '../people/people-world.ts';
import { storeKey, storeProgram } from '../programs/stored-programs.ts';
import { factorWorld } from './factors/factor-world.ts';
import { passkeyWorld } from './factors/passkey-world.ts';
import { addSampleUser, type SampleUser } from './sample-users.ts';

const loginPath = '/api/v1/auth/login';
const loginsPath = '/api/v1/Logins';
const ownPath = '/api/v1/auth/logins';
const rowsPerHour = 20;

interface Login {
  readonly Id: number;
  readonly CreatedAt: string;
  readonly UserId: number | null;
  readonly Method: string | null;
  readonly Outcome: 'succeeded' | 'failed';
  readonly FailureReason: string | null;
  readonly Network: string | null;
  readonly UserAgent: string | null;
  readonly Count: number;
}

describe('the list of logins', () => {
  const world = useWorld({ TRUSTED_PROXIES: '127.0.0.1' });
  const urls = useTwoProcesses(world);
  const admin = useLogin(world, 'acme');
  const other = useLogin(world, 'globex');
  const { add, addTotp, code, login, passCode, verify } = factorWorld(world);

  const wrong = 'not the password of anybody';
  const tryLogin = (
    { email, password }: Pick<SampleUser, 'email' | 'password'>,
    { url = world.url, tenant = world.acme, headers = {} } = {},
  ): Promise<ApiResponse> =>
    world.anonymous
      .at(url)
      .post(loginPath, { email, password }, { 'X-Tenant': tenant.guid, ...headers });
  /** Fails to log in at both processes in turn, ten times at once, which wait for no hash. */
  const failAtBoth = async (addresses: readonly string[]): Promise<void> => {
    for (let first = 0; first < addresses.length; first += 10) {
      const attempts = addresses
        .slice(first, first + 10)
        .map((email, index) => tryLogin({ email, password: wrong }, { url: urls[index % 2] }));
      for (const { status } of await Promise.all(attempts)) expect(status).to.equal(401);
    }
  };
  const addPerson = (tenant: TestTenant = world.acme): Promise<SampleUser> =>
    addSampleUser(world, tenant);
  /** Returns all logins of the tenant of a client, of one user, the newest first. */
  const loginsOf = async (userId: number | null, client: Client = admin): Promise<Login[]> => {
    const filter = userId === null ? 'filter[UserId][null]=true' : `filter[UserId]=${userId}`;
    const { status, body } = await client.get(`${loginsPath}?${filter}&limit=1000`);
    expect(status, JSON.stringify(body)).to.equal(200);
    return body;
  };
  const failuresOf = async (userId: number | null, client?: Client): Promise<number> =>
    (await loginsOf(userId, client))
      .filter(({ Outcome }) => Outcome === 'failed')
      .reduce((sum, { Count }) => sum + Count, 0);
  /** Waits until so many failed logins are counted. */
  const failed = (count: number, userId: number | null, client?: Client) =>
    eventually(async () => (await failuresOf(userId, client)) >= count);

  it('each login that succeeds is one entry of its tenant, with network and program, at every process', async () => {
    const person = await addPerson();
    const headers = {
      'User-Agent': `Example/1.0 (${'x'.repeat(100)})`,
      'X-Forwarded-For': '2001:db8:1:2:3:4:5:6',
    };

    for (const url of urls) expect((await tryLogin(person, { url, headers })).status).to.equal(200);
    expect((await tryLogin(person)).status).to.equal(200);

    const logins = await loginsOf(person.id);
    expect(logins.map(({ Id: _, CreatedAt: __, ...rest }) => rest)).to.deep.equal(
      [
        { Network: '127.0.0.1', UserAgent: null },
        ...urls.map(() => ({
          Network: '2001:db8:1:2::/64',
          UserAgent: headers['User-Agent'].slice(0, 60),
        })),
      ].map(client => ({
        UserId: person.id,
        Method: 'pwd',
        Outcome: 'succeeded',
        FailureReason: null,
        ...client,
        Count: 1,
      })),
    );
    expect(await loginsOf(person.id, other)).to.deep.equal([]);
  });

  it('failed logins of one person at two processes are 20 entries an hour, and a number beyond', async () => {
    const person = await addPerson();
    await failAtBoth(Array.from({ length: 60 }, () => person.email));
    await failed(60, person.id);
    expect((await tryLogin({ ...person, password: wrong })).status).to.equal(401);
    await failed(61, person.id);

    // The hour may have ended meanwhile.
    const byHour = Map.groupBy(await loginsOf(person.id), each => each.CreatedAt.slice(0, 13));
    for (const logins of byHour.values()) {
      const singles = logins.filter(({ FailureReason }) => FailureReason === 'wrong_password');
      const rest = logins.filter(({ FailureReason }) => FailureReason === 'more_failures');
      const all = logins.reduce((sum, { Count }) => sum + Count, 0);

      expect(singles).to.have.length(Math.min(all, rowsPerHour));
      expect(singles[0]).to.include({ Method: 'pwd', Network: '127.0.0.1', Count: 1 });
      expect(rest.map(({ Count }) => Count)).to.deep.equal(
        all > rowsPerHour ? [all - rowsPerHour] : [],
      );
    }
    expect(await failuresOf(person.id)).to.equal(61);
    expect(await loginsOf(person.id, other)).to.deep.equal([]);
  });

  it('failed logins to addresses of nobody are one number an hour of their tenant, without the address', async () => {
    const [before, beforeOfOther] = [await failuresOf(null), await failuresOf(null, other)];
    const ofOther = await addPerson(world.globex);
    const addresses = [
      ...Array.from({ length: 29 }, (_, index) => `stranger-${index}@nowhere.test`),
      ofOther.email,
    ];

    await failAtBoth(addresses);
    await failed(before + 30, null);

    expect(await failuresOf(null)).to.equal(before + 30);
    expect(await failuresOf(null, other)).to.equal(beforeOfOther);
    expect(await loginsOf(ofOther.id, other)).to.deep.equal([]);
    const hours = await loginsOf(null);
    expect(new Set(hours.map(({ CreatedAt }) => CreatedAt)).size).to.equal(hours.length);
    for (const hour of hours) {
      expect(hour).to.include({ Method: null, FailureReason: 'unknown_address', Network: null });
    }
    const stored = await controlSql(
      world,
      `select from logins where logins::text like '%nowhere.test%' or logins::text like '%stranger%'`,
    );
    expect(stored).to.deep.equal([]);
  });

  it('a failed login waits for no entry, whether its address is known or not, and is counted later', async () => {
    const person = await addPerson();
    const before = await failuresOf(null);

    await world.control.em.fork().transactional(async em => {
      await em.execute('lock table logins in access exclusive mode');
      expect((await tryLogin({ ...person, password: wrong })).status).to.equal(401);
      expect((await tryLogin({ email: 'nobody@acme.test', password: wrong })).status).to.equal(401);
      await eventually(async () => (await em.execute(lockWaiters)).length > 0);
      expect((await tryLogin({ ...person, password: wrong })).status).to.equal(401);
    });

    await failed(2, person.id);
    await failed(before + 1, null);
    expect(await failuresOf(person.id)).to.equal(2);
    expect(await failuresOf(null)).to.equal(before + 1);
  });

  it('a process that stops stores the failed logins that it has', async () => {
    const person = await addPerson();
    const { service, url } = await world.startAnotherServer();

    expect((await tryLogin({ ...person, password: wrong }, { url })).status).to.equal(401);
    await service.stop();

    expect(await failuresOf(person.id)).to.equal(1);
  });

  it('the entry of a failed login says whether the password was wrong or the account is inactive', async () => {
    const [disabled, unconfirmed] = [await addPerson(), await addPerson()];
    await controlSql(world, 'update users set disabled_at = now() where id = ?', [disabled.id]);
    await controlSql(world, 'update users set confirmed_at = null where id = ?', [unconfirmed.id]);

    for (const person of [disabled, unconfirmed]) {
      expect((await tryLogin(person)).status).to.equal(401);
      await failed(1, person.id);
      const [entry] = await loginsOf(person.id);
      expect(entry).to.include({ Outcome: 'failed', FailureReason: 'account_inactive', Count: 1 });
    }
  });

  it('a login with a second factor is one entry, and a wrong code is a failed login', async () => {
    const { person, client, userId } = await add(world.acme);
    const { secret } = await addTotp(client);
    const challenge = (await login(person)).body.challenge;

    const refused = await verify(person, { challenge, code: code(secret, -40) });
    expect(refused.body.code).to.equal('invalid_code');
    await failed(1, userId);
    passCode();
    expect((await verify(person, { challenge, code: code(secret) })).status).to.equal(200);

    const [completed, wrongCode, first] = await loginsOf(userId);
    expect(completed).to.include({ Outcome: 'succeeded', Method: 'pwd otp', FailureReason: null });
    expect(wrongCode).to.include({
      Outcome: 'failed',
      Method: 'pwd otp',
      FailureReason: 'invalid_code',
    });
    expect(first).to.include({ Outcome: 'succeeded', Method: 'pwd' });
    expect(await loginsOf(userId)).to.have.length(3);
  });

  it('a wrong passkey alone is a failed login of its person, and one of nobody is counted as an unknown address', async () => {
    const { loginOptions, loginAlone, addPasskey, setPages } = passkeyWorld(world);
    await setPages([world.url]);
    const { client, userId } = await add(world.acme);
    const { authenticator } = await addPasskey(client);
    const stranger = await add(world.globex);
    const ofStranger = await addPasskey(stranger.client);
    const before = await failuresOf(null);
    const { body: options } = await loginOptions(world.acme);

    const unverified = authenticator.get(options, { isVerified: false });
    for (const passkey of [unverified, ofStranger.authenticator.get(options)]) {
      expect((await loginAlone(world.acme, passkey)).status).to.equal(401);
    }

    await failed(1, userId);
    await failed(before + 1, null);
    const [entry] = (await loginsOf(userId)).filter(({ Outcome }) => Outcome === 'failed');
    expect(entry).to.include({ Method: 'pop', FailureReason: 'invalid_passkey', Count: 1 });
    expect((await loginAlone(world.acme, authenticator.get(options))).status).to.equal(200);
    const [newest] = await loginsOf(userId);
    expect(newest).to.include({ Method: 'pop user', Outcome: 'succeeded' });
    expect(await failuresOf(stranger.userId, other)).to.equal(0);
  });

  it('a refresh, a key of a program and a token of one are no entries', async () => {
    const person = await addPerson();
    const { body } = await tryLogin(person);
    const program = await storeProgram(world, world.acme);
    const { key } = await storeKey(world, world.acme, program.id);

    const refreshed = await world.anonymous.post(
      '/api/v1/auth/refresh',
      { refreshToken: body.refreshToken },
      { 'X-Tenant': world.acme.guid },
    );
    expect(refreshed.status).to.equal(200);
    expect((await world.anonymous.withToken(key).get('/api/v1/auth/me')).status).to.equal(200);
    const exchanged = await fetch(`${world.url}/api/v1/auth/token`, {
      method: 'POST',
      body: new URLSearchParams({
        grant_type: 'client_credentials',
        client_id: program.guid,
        client_secret: key,
      }),
    });
    expect(exchanged.status).to.equal(200);

    expect(await loginsOf(person.id)).to.have.length(1);
    expect(await loginsOf(program.id)).to.deep.equal([]);
  });

  it('a person without a permission lists the own logins, and those of nobody else', async () => {
    const client = await world.loginAs(world.acme, { permissions: [] });
    const { userGuid } = (await client.get('/api/v1/auth/me')).body;
    const [user] = await controlSql<{ id: string; email: string }>(
      world,
      'select id, email from users where guid = ?',
      [userGuid],
    );
    const userId = Number(user?.id);
    await tryLogin({ email: user?.email ?? '', password: wrong });
    await failed(1, userId);

    const own = await client.get(ownPath);
    expect(own.status).to.equal(200);
    expect(own.body).to.deep.equal(await loginsOf(userId));
    expect(own.body.map(({ Outcome }: Login) => Outcome)).to.deep.equal(['failed', 'succeeded']);
    const filtered = await client.get(`${ownPath}?filter[Outcome]=failed`);
    expect(filtered.body).to.have.length(1);
    const ofAll = await client.get(loginsPath);
    expect(ofAll.status).to.equal(403);
    expect(ofAll.headers.get('www-authenticate')).to.include('users.read');
  });

  it('a person of scope Self lists the own logins only, also with users.read', async () => {
    const client = await world.loginAs(world.acme, {
      permissions: ['users.read'],
      scope: 'Self',
    });

    expect((await client.get(loginsPath)).status).to.equal(403);
    expect((await client.get(ownPath)).body).to.have.length(1);
  });

  it('the list of logins has pages, the names of users, and filters by user', async () => {
    const person = await addPerson();
    for (let count = 0; count < 3; count++) await tryLogin(person);

    const first = await admin.get(
      `${loginsPath}?filter[UserId]=${person.id}&sort=-Id&limit=2&include=user`,
    );
    expect(first.body.map(({ UserName }: { UserName: string }) => UserName)).to.deep.equal([
      'Per Son',
      'Per Son',
    ]);
    const [, next = ''] = /<([^>]+)>; rel="next"/.exec(first.headers.get('link') ?? '') ?? [];
    const second = await admin.get(next);
    expect(second.body).to.have.length(1);
    const plain = await admin.get(`${loginsPath}?userId=${person.id}&limit=2`);
    expect(plain.body).to.deep.equal(
      first.body.map(({ UserName: _, ...login }: { UserName: string }) => login),
    );
  });

  it('logins are kept for a year, or as long as an operator says, and older ones go with one of the next 16', async () => {
    const person = await addPerson();
    /** Entries of both tenants, which come before all others. */
    const addOld = (age: string, firstId: number) =>
      insertWithoutTriggers(
        world,
        'logins',
        `insert into logins (id, tenant_id, outcome, user_agent, created_at) overriding system value
         select ${firstId} + row_number() over (), id, 'succeeded', 'old', now() - interval '${age}'
           from tenants cross join generate_series(1, 3)`,
      );
    const left = async () =>
      (await controlSql(world, `select from logins where user_agent = 'old'`)).length;
    const run = (...args: string[]) =>
      runCommand('scripts/tenant.ts', ['retention', ...args, '--json'], world.environment);
    const logInSixteenTimes = async () => {
      for (let i = 0; i < 16; i++) expect((await tryLogin(person)).status).to.equal(200);
    };
    await addOld('13 months', -2_000);
    await addOld('11 months', -1_000);

    await logInSixteenTimes();
    expect(await left(), 'a year by default').to.equal(6);

    const refused = await run('acme', '--logins', '90d');
    expect(refused.code).to.equal(2);
    expect(refused.stderr).to.include('--default');
    const set = await run('--default', '--logins', '90d');
    expect(JSON.parse(set.stdout)).to.include({ people: '10y', logins: '90d' });

    await logInSixteenTimes();
    expect(await left(), '90 days').to.equal(0);
  });
});
