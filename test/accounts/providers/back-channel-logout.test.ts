import { expect } from 'chai';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import type { Client } from '../../support/client.ts';
import { eventually } from '../../support/eventually.ts';
import { startProvider } from '../../support/identity-provider.ts';
import { readLockWaiters } from '../../support/lock-waiters.ts';
import { use } from '../../support/use.ts';
import { createWorld, type TestTenant } from '../../support/world.ts';
import { addSampleUser } from '../auth/sample-users.ts';
import {
  type ConfiguredProvider,
  identitiesPath,
  newPerson,
  signInWorld,
} from './provider-world.ts';

const mePath = '/api/v1/auth/me';
const logoutPath = '/api/v1/auth/logout';

describe('a logout at a provider', () => {
  const provider = use(startProvider);
  const world = use(() => createWorld({ TRUSTED_PROVIDERS: provider.trusted }));
  let configured: ConfiguredProvider;

  before(async () => {
    configured = await signInWorld(world, provider).configure(world.acme);
    await signInWorld(world, provider).configure(world.globex);
    provider.sendLogoutsTo(`${world.url}${logoutPath}/${configured.Guid}`);
  });

  /** Adds a user, and links an account at the provider. */
  const addPerson = async (tenant: TestTenant = world.acme) => {
    const user = await addSampleUser(world, tenant);
    const person = newPerson();
    const byPassword = await world.login(tenant, user);
    await signInWorld(world, provider).link(byPassword, person);
    return { person, byPassword };
  };
  const signIn = (person: { sub: string }, tenant = world.acme) =>
    signInWorld(world, provider).signIn(person, tenant);
  /** Signs in at the second after the logout tokens of this one. */
  const signInAfter = async ({ sub }: { sub: string }): Promise<Client> => {
    const iat = Math.floor(Date.now() / 1000) + 1;
    const { status, body } = await signInWorld(world, provider).exchange(
      await provider.sign(provider.claims(sub, { iat })),
    );
    expect(status, JSON.stringify(body)).to.equal(200);
    return world.anonymous.withToken(body.accessToken);
  };
  const send = async (token: string, guid = configured.Guid): Promise<Response> =>
    fetch(`${world.url}${logoutPath}/${guid}`, {
      method: 'POST',
      body: new URLSearchParams({ logout_token: token }),
    });
  const statusOf = async (client: Client): Promise<number> => (await client.get(mePath)).status;
  const ended = (client: Client) => eventually(async () => (await statusOf(client)) === 401);

  it('a person who signs out at a certified provider is logged out here, at every process, and in no other tenant', async () => {
    const { person } = await addPerson();
    const atGlobex = await world.login(world.globex, await addSampleUser(world, world.globex));
    await signInWorld(world, provider).link(atGlobex, person);
    const { url } = await world.startAnotherServer();
    const client = await signIn(person);
    const elsewhere = await signIn(person, world.globex);
    expect(await statusOf(client.at(url))).to.equal(200);

    await provider.signOut(person);

    await ended(client);
    await ended(client.at(url));
    expect(await statusOf(elsewhere)).to.equal(200);
  });

  it('a logout token ends the sessions of its person, and neither those of others nor those of a password', async () => {
    const { person, byPassword } = await addPerson();
    const other = await addPerson();
    const [one, two, others] = [
      await signIn(person),
      await signIn(person),
      await signIn(other.person),
    ];

    const { status } = await send(await provider.sign(provider.logoutClaims({ sub: person.sub })));

    expect(status).to.equal(200);
    await ended(one);
    await ended(two);
    expect(await statusOf(others)).to.equal(200);
    expect(await statusOf(byPassword)).to.equal(200);
  });

  it('a logout token of one session at the provider ends that session, and no other one of its person', async () => {
    const { person } = await addPerson();
    const open = async (sid: string): Promise<Client> => {
      const idToken = await provider.sign(provider.claims(person.sub, { sid }));
      const { body } = await signInWorld(world, provider).exchange(idToken);
      return world.anonymous.withToken(body.accessToken);
    };
    const [one, two, three] = [await open('one'), await open('two'), await open('three')];

    await send(await provider.sign(provider.logoutClaims({ sid: 'one' })));
    await send(await provider.sign(provider.logoutClaims({ sub: person.sub, sid: 'two' })));

    await ended(one);
    await ended(two);
    expect(await statusOf(three)).to.equal(200);
  });

  it('the path of a provider is as it is written, but for the letters of its guid', async () => {
    const { person } = await addPerson();
    const client = await signIn(person);
    const sendTo = async (path: string): Promise<Response> =>
      fetch(`${world.url}${path}`, {
        method: 'POST',
        body: new URLSearchParams({
          logout_token: await provider.sign(provider.logoutClaims({ sub: person.sub })),
        }),
      });
    const guid = configured.Guid;

    for (const path of [
      `/API/v1/auth/logout/${guid}`,
      `/api/v1/auth/Logout/${guid}`,
      `${logoutPath}/${guid}/`,
      `${logoutPath}//${guid}`,
      `${logoutPath}/${guid}%00`,
      `${logoutPath}/${guid.slice(1)}`,
    ]) {
      const response = await sendTo(path);
      expect(response.status, path).to.equal(403);
      expect(await response.json(), path).to.include({ code: 'tenant_required' });
    }
    expect(await statusOf(client)).to.equal(200);

    expect((await sendTo(`${logoutPath}/${guid.toUpperCase()}`)).status).to.equal(200);
    await ended(client);
  });

  it('a logout token is good once', async () => {
    const { person } = await addPerson();
    const token = await provider.sign(provider.logoutClaims({ sub: person.sub }));

    expect((await send(token)).status).to.equal(200);
    const client = await signInAfter(person);
    const again = await send(token);

    expect(again.status).to.equal(400);
    expect(await statusOf(client)).to.equal(200);
  });

  it('an ID token of before a logout lets nobody in, one of after it does, and those of others go on', async () => {
    const { person, byPassword } = await addPerson();
    const other = await addPerson();
    const before = await provider.signIn(person);
    const ofOther = await provider.signIn(other.person);

    await send(await provider.sign(provider.logoutClaims({ sub: person.sub })));

    const refused = await signInWorld(world, provider).exchange(before);
    expect(refused.status).to.equal(401);
    expect(refused.body.code).to.equal('invalid_id_token');
    expect((await signInWorld(world, provider).exchange(ofOther)).status).to.equal(200);
    expect(await statusOf(await signInAfter(person))).to.equal(200);
    expect(await statusOf(byPassword)).to.equal(200);
  });

  it('a login that is made to wait for its second factor while its person is logged out is not completed', async () => {
    const { person } = await addPerson();
    const ofPerson = 'from identities where subject = $1';
    const token = await provider.sign(provider.logoutClaims({ sub: person.sub }));

    const left = await withConnection(world.config.databaseUrl ?? '', async client => {
      await client.query('begin');
      await client.query(`select ${ofPerson} for update`, [person.sub]);
      await client.query(
        `insert into login_challenges (hash, tenant_id, user_id, purpose, password, password_is_short,
                                       expires_at, identity_id)
         select sha256(subject::bytea), tenant_id, user_id, 'verify', sha256('a hash'), false,
                now() + interval '5 minutes', id ${ofPerson}`,
        [person.sub],
      );
      const ended = send(token);
      await eventually(async () => (await readLockWaiters(client)).length > 0);
      await client.query('commit');
      expect((await ended).status).to.equal(200);

      const { rows } = await client.query(
        `select from login_challenges where identity_id = (select id ${ofPerson})`,
        [person.sub],
      );
      return rows;
    });

    expect(left).to.deep.equal([]);
  });

  it('an ID token of before a logout is linked to nobody', async () => {
    const person = newPerson();
    const client = await world.login(world.acme, await addSampleUser(world, world.acme));
    const idToken = await provider.signIn(person);

    await send(await provider.sign(provider.logoutClaims({ sub: person.sub })));

    const refused = await client.post(identitiesPath, { idToken });
    expect(refused.status).to.equal(401);
    expect(refused.body.code).to.equal('invalid_id_token');
    expect((await client.get(identitiesPath)).body).to.deep.equal([]);
  });

  it('an ID token of before a logout that names the session alone lets nobody in', async () => {
    const { person } = await addPerson();
    const tokenOf = (sid: string) => provider.sign(provider.claims(person.sub, { sid }));
    const sid = crypto.randomUUID();
    const { exchange } = signInWorld(world, provider);
    const before = await tokenOf(sid);
    expect((await exchange(await tokenOf(sid))).status).to.equal(200);

    await send(await provider.sign(provider.logoutClaims({ sid })));

    expect((await exchange(before)).status).to.equal(401);
  });

  it('a token that is no good logout token ends nothing, and all of them get one response', async () => {
    const { person } = await addPerson();
    const client = await signIn(person);
    const { sub } = person;
    const refused: readonly [string, Promise<string>, string?][] = [
      ['an ID token', provider.signIn(person)],
      ['another key', provider.sign(provider.logoutClaims({ sub }), { key: 'other' })],
      ['a nonce', provider.sign(provider.logoutClaims({ sub, nonce: 'a nonce' }))],
      ['an old one', provider.sign(provider.logoutClaims({ sub, iat: 1, exp: 2 }))],
      ['another client', provider.sign(provider.logoutClaims({ sub, aud: 'somebody' }))],
      ['no token', Promise.resolve('a text')],
      ['no provider', provider.sign(provider.logoutClaims({ sub })), crypto.randomUUID()],
    ];

    for (const [title, token, guid] of refused) {
      const response = await send(await token, guid);
      expect(response.status, title).to.equal(400);
      expect(await response.json(), title).to.deep.equal({ error: 'invalid_request' });
      expect(response.headers.get('cache-control'), title).to.equal('no-store');
    }
    expect(await statusOf(client)).to.equal(200);
  });

  it('a logout token is taken from a form only, and once', async () => {
    const url = `${world.url}${logoutPath}/${configured.Guid}`;
    const token = await provider.sign(provider.logoutClaims({ sub: 'ada' }));
    const twice = new URLSearchParams([
      ['logout_token', token],
      ['logout_token', token],
    ]);

    const asJson = await fetch(url, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ logout_token: token }),
    });
    const asQuery = await fetch(`${url}?logout_token=${token}`);
    const repeated = await fetch(url, { method: 'POST', body: twice });

    expect(asJson.status).to.equal(415);
    expect(asQuery.status).to.equal(405);
    expect(repeated.status).to.equal(400);
  });

  it('no line of the log has a logout token, and the line of a refused one has the reason', async () => {
    const token = await provider.sign(provider.logoutClaims({ sub: 'ada', aud: 'somebody' }));

    await send(token);

    const line = world.logs.find(
      each => each.includes('logout_token_refused') && each.includes('"audience"'),
    );
    expect(line).to.include(configured.Guid);
    expect(world.logs.filter(each => each.includes(token))).to.deep.equal([]);
  });
});
