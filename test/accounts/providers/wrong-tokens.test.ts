import { expect } from 'chai';
import { startProvider, type WrongAnswer } from '../../support/identity-provider.ts';
import { oddValues } from '../../support/odd-values.ts';
import { use, useEach } from '../../support/use.ts';
import { controlSql, createWorld } from '../../support/world.ts';
import { addSampleUser } from '../auth/sample-users.ts';
import { expectProblem } from '../people/people-world.ts';
import { newPerson, signInWorld } from './provider-world.ts';

const nowS = (): number => Math.floor(Date.now() / 1_000);

/** Returns a token that nobody has signed. */
function unsigned(claims: object, header: object = {}): string {
  const parts = [{ alg: 'RS256', ...header }, claims].map(part =>
    Buffer.from(JSON.stringify(part)).toString('base64url'),
  );
  return [...parts, 'c2lnbmVk'].join('.');
}

describe('an exchange of a token that is wrong', () => {
  const provider = use(startProvider);
  const world = use(() => createWorld({ TRUSTED_PROVIDERS: provider.trusted }));
  const person = newPerson();

  before(async () => {
    const people = signInWorld(world, provider);
    for (const tenant of [world.acme, world.globex]) {
      await people.configure(tenant);
      await people.link(await world.login(tenant, await addSampleUser(world, tenant)), person);
    }
  });

  const exchange = (token: string, tenant = world.acme, url = world.url) =>
    signInWorld(world, provider).exchange(token, tenant, url);
  const sign = (changes: object = {}, options = {}) =>
    provider.sign(provider.claims(person.sub, { ...changes }), options);

  const wrong: readonly [title: string, token: () => Promise<string>][] = [
    ['of an unknown person', () => provider.signIn(newPerson())],
    ['signed by another key', () => sign({}, { key: 'other' })],
    ['of another issuer by one letter', () => sign({ iss: `${provider.issuer}0` })],
    ['with an audience beside ours', () => sign({ aud: [provider.clientIds[0], 'somebody'] })],
    ['for another client', () => provider.signIn(person, { clientId: provider.clientIds[1] })],
    ['with a foreign authorized party', () => sign({ azp: 'somebody' })],
    ['that has expired', () => sign({ exp: nowS() - 1 })],
    ['from tomorrow', () => sign({ iat: nowS() + 86_400, exp: nowS() + 90_000 })],
    ['of a clock that is five minutes fast', () => sign({ iat: nowS() + 300 })],
    ['without a nonce', () => provider.signIn(person, { nonce: null })],
    ['that is a logout token', () => provider.sign(provider.logoutClaims({ sub: person.sub }))],
    ['that is an access token', () => provider.accessToken(person)],
    ['of an issuer that no text can name', async () => unsigned({ iss: '\0' })],
    ['that is a text', async () => 'a text'],
  ];
  for (const [title, token] of wrong) {
    it(`a token ${title} gets the one 401 of all wrong tokens, and opens no session`, async () => {
      const [before] = await controlSql<{ count: string }>(world, 'select count(*) from sessions');

      const refused = await exchange(await token());

      expectProblem(refused, 401, 'invalid_id_token');
      const { traceId: _, ...same } = refused.body;
      const { traceId: __, ...plain } = (await exchange('another text')).body;
      expect(same).to.deep.equal(plain);
      const [after] = await controlSql<{ count: string }>(world, 'select count(*) from sessions');
      expect(after?.count).to.equal(before?.count);
    });
  }

  it('a token is good once, whether it is sent again to its tenant or to another one', async () => {
    const token = await provider.signIn(person);

    expect((await exchange(token)).status).to.equal(200);

    expectProblem(await exchange(token), 401, 'invalid_id_token');
    expectProblem(await exchange(token, world.globex), 401, 'invalid_id_token');
  });

  it('a token that two processes get at once opens one session', async () => {
    const { url } = await world.startAnotherServer();
    const token = await provider.signIn(person);

    const answers = await Promise.all(
      [world.url, url, world.url, url].map(each => exchange(token, world.acme, each)),
    );

    expect(answers.map(({ status }) => status).sort()).to.deep.equal([200, 401, 401, 401]);
  });

  it('a token at two tenants at once opens a session of one of them', async () => {
    const token = await provider.signIn(person);

    const answers = await Promise.all([exchange(token, world.acme), exchange(token, world.globex)]);

    expect(answers.map(({ status }) => status).sort()).to.deep.equal([200, 401]);
  });

  it('no line of the log has a token, and the line of a refused one has the reason', async () => {
    const token = await sign({ nonce: undefined });

    await exchange(token);

    const line = world.logs.find(
      each => each.includes('id_token_refused') && each.includes('"nonce"'),
    );
    expect(line).to.be.a('string');
    expect(world.logs.filter(each => each.includes(token))).to.deep.equal([]);
  });

  it('a token of a provider whose clock is five minutes slow is exchanged, and one of a clock that is as much fast is not', async () => {
    const [ofSlow, ofFast] = [await provider.signIn(person), await provider.signIn(person)];

    world.clock.offsetSeconds = 300;
    const slow = await exchange(ofSlow);
    world.clock.offsetSeconds = -300;
    const fast = await exchange(ofFast);
    world.clock.offsetSeconds = 0;

    expect(slow.status, JSON.stringify(slow.body)).to.equal(200);
    expectProblem(fast, 401, 'invalid_id_token');
    expect(world.logs.findLast(line => line.includes('id_token_refused'))).to.include(
      '"not_yet_valid"',
    );
  });

  it('a token of a new key is exchanged after the provider has rotated its keys', async () => {
    await provider.rotateKeys();
    world.clock.offsetSeconds += 61; // keys of a token are fetched again once a minute
    const token = await sign({ iat: nowS() + 61, exp: nowS() + 661 });

    const answer = await exchange(token);
    world.clock.offsetSeconds = 0;

    expect(answer.status, JSON.stringify(answer.body)).to.equal(200);
  });
});

/** Values that a member of a token can have, and should not. */
const values: readonly unknown[] = [
  ...oddValues,
  0,
  'x'.repeat(3_000),
  ['RS256'],
  [['a']],
  { toString: 1 },
  { toString: null, valueOf: null },
  { length: -1 },
];

describe('a token with odd members', () => {
  const provider = use(startProvider);
  const world = use(() => createWorld({ TRUSTED_PROVIDERS: provider.trusted }));
  let guid: string;

  before(async () => {
    const CreatesUsers = { Role: 'Member', Scope: 'All', Domains: ['example.com'] };
    const configured = await signInWorld(world, provider).configure(world.acme, { CreatesUsers });
    guid = configured.Guid;
  });
  afterEach('nothing was logged as an error', () => {
    expect(world.logs.filter(line => JSON.parse(line).level >= 50)).to.deep.equal([]);
  });

  const exchange = (token: string) => signInWorld(world, provider).exchange(token);
  const logOut = (token: string) =>
    fetch(`${world.url}/api/v1/auth/logout/${guid}`, {
      method: 'POST',
      body: new URLSearchParams({ logout_token: token }),
    });
  /** The claims of a person who gets an account. */
  const claimsOfNew = (): Record<string, unknown> => {
    const { sub } = newPerson();
    return provider.claims(sub, {
      nbf: nowS(),
      azp: provider.clientIds[0],
      amr: ['pwd'],
      sid: 'a session',
      email: `${sub}@example.com`,
      email_verified: true,
      name: 'Nora Newman',
      given_name: 'Nora',
      family_name: 'Newman',
    });
  };

  it('a token with any value in any member of its header, which nobody has signed, is refused as every wrong one is', async () => {
    for (const name of ['alg', 'typ', 'kid', 'crit', 'b64', 'jwk', 'jku', 'x5c', 'zip']) {
      for (const value of values) {
        const message = `${name} ${JSON.stringify(value).slice(0, 40)}`;
        const refused = await exchange(unsigned(claimsOfNew(), { [name]: value }));
        const notEnded = await logOut(
          unsigned(provider.logoutClaims({ sub: 'somebody' }), { [name]: value }),
        );

        expect(refused.status, message).to.equal(401);
        expect(refused.body.code, message).to.equal('invalid_id_token');
        expect(notEnded.status, message).to.equal(400);
      }
    }
  });

  it('an ID token that the provider has signed with any value of any claim gets tokens, or is refused as every wrong one is', async () => {
    expect((await exchange(await provider.sign(claimsOfNew()))).status).to.equal(200);

    for (const name of Object.keys(claimsOfNew())) {
      for (const value of values) {
        const { status, body } = await exchange(
          await provider.sign({ ...claimsOfNew(), [name]: value }),
        );

        const message = `${name} ${JSON.stringify(value).slice(0, 40)} ${JSON.stringify(body)}`;
        expect(status, message).to.be.oneOf([200, 401]);
        if (status === 401) expect(body.code, message).to.equal('invalid_id_token');
      }
      // At most 100 accounts are made by a rule in an hour.
      await controlSql(world, 'update identities set is_by_rule = false');
    }
  });

  it('a logout token that the provider has signed with any value of any claim is taken or refused', async () => {
    const claims = provider.logoutClaims({ sub: 'somebody', sid: 'a session' });
    expect((await logOut(await provider.sign(claims))).status).to.equal(200);

    for (const name of Object.keys(claims)) {
      for (const value of values) {
        const fresh = provider.logoutClaims({ sub: 'somebody', sid: 'a session' });
        const { status } = await logOut(await provider.sign({ ...fresh, [name]: value }));
        expect(status, `${name} ${JSON.stringify(value).slice(0, 40)}`).to.be.oneOf([200, 400]);
      }
    }
  });
});

describe('an exchange while the provider is sick', () => {
  const provider = use(startProvider);
  const world = useEach(() => createWorld({ TRUSTED_PROVIDERS: provider.trusted }));
  const person = newPerson();

  beforeEach(async () => {
    provider.answer(undefined);
    const people = signInWorld(world, provider);
    await people.configure(world.acme);
    await people.link(await world.login(world.acme), person);
  });
  afterEach(() => provider.answer(undefined));

  const sick: readonly [WrongAnswer, string][] = [
    ['error', 'status'],
    ['html', 'not_json'],
    ['large', 'too_large'],
    ['redirect', 'redirect'],
    ['many-keys', 'too_many_keys'],
  ];
  for (const [how, reason] of sick) {
    it(`a provider that answers wrongly (${how}) makes a sign-in 503, with the reason ${reason} in the log`, async () => {
      const token = await provider.signIn(person);
      const { url } = await world.startAnotherServer(); // it has no keys yet
      provider.answer(how);

      const refused = await signInWorld(world, provider).exchange(token, world.acme, url);

      expectProblem(refused, 503, 'unavailable');
      expect(refused.headers.get('retry-after')).to.match(/^\d+$/);
      const line = world.logs.find(each => each.includes(`"reason":"${reason}"`));
      expect(line).to.include('provider_unavailable');
    });
  }

  it('people whose provider is away sign in by the keys that are known, and others log in as ever', async () => {
    const token = await provider.signIn(person);
    provider.answer('error');

    const answer = await signInWorld(world, provider).exchange(token);

    expect(answer.status).to.equal(200);
    expect((await (await world.login(world.globex)).get('/api/v1/auth/me')).status).to.equal(200);
  });
});
