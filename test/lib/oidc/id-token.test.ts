import { createHmac } from 'node:crypto';
import { expect } from 'chai';
import { readConfig } from '../../../src/lib/config/config.ts';
import type { Provider } from '../../../src/lib/oidc/provider.ts';
import { TokenRefusedError } from '../../../src/lib/oidc/provider-error.ts';
import { Providers } from '../../../src/lib/oidc/providers.ts';
import { issuerOfToken } from '../../../src/lib/oidc/verify-token.ts';
import { type SignOptions, startProvider } from '../../support/identity-provider.ts';
import { use } from '../../support/use.ts';

const tenantGuid = '0f7c1d3e-5b7a-4c59-9d0e-6a1f2b3c4d5e';
const nowS = (): number => Math.floor(Date.now() / 1_000);

/** Returns the reason why a token is refused; undefined for one that is accepted. */
async function refusalOf(verified: Promise<unknown>): Promise<string | undefined> {
  try {
    await verified;
    return undefined;
  } catch (error) {
    if (error instanceof TokenRefusedError) return error.reason;
    throw error;
  }
}

describe('tokens of a provider', () => {
  const provider = use(startProvider);
  let configured: Provider;
  let providers: Providers;

  before(() => {
    const { trustedProviders: trusted } = readConfig({
      TRUSTED_PROVIDERS: provider.trustedBy([{ guid: tenantGuid }]),
    });
    configured = {
      guid: 'f2f6a0c2-6a2f-4c63-9d2b-8d1c8b1f3a11',
      tenantGuid,
      issuer: provider.issuer,
      clientIds: provider.clientIds.slice(0, 1),
    };
    providers = new Providers({ trusted, now: nowS });
  });
  after(() => providers.close());

  const verify = (token: string, changes: Partial<Provider> = {}) =>
    providers.verifyIdToken(token, { ...configured, ...changes });
  const signed = (changes: object = {}, options?: SignOptions) =>
    provider.sign(provider.claims('ada', { ...changes }), options);

  it('an ID token of a sign-in with PKCE at a certified provider is accepted, with what it says of the person', async () => {
    const person = {
      sub: 'ada',
      email: 'ada@example.com',
      email_verified: true,
      name: 'Ada L',
      hd: 'example.com',
    };

    const claims = await verify(await provider.signIn(person, { amr: ['pwd', 'mfa'] }));

    expect(claims.sub).to.equal('ada');
    expect(claims.email).to.equal('ada@example.com');
    expect(claims.emailVerified).to.equal(true);
    expect(claims.name).to.equal('Ada L');
    expect(claims.amr).to.deep.equal(['pwd', 'mfa']);
    expect(claims.all.hd).to.equal('example.com');
    expect(claims.endsAt).to.be.within(nowS() + 540, nowS() + 602);
  });

  it('an ID token of a sign-in without a nonce is refused', async () => {
    const token = await provider.signIn({ sub: 'ada' }, { nonce: null });

    expect(await refusalOf(verify(token))).to.equal('nonce');
  });

  it('an ID token for another client of the provider is refused, unless both are configured', async () => {
    const [first, second] = provider.clientIds;
    const token = await provider.signIn({ sub: 'ada' }, { clientId: second });

    expect(await refusalOf(verify(token))).to.equal('audience');
    expect(await refusalOf(verify(token, { clientIds: [first, second] }))).to.equal(undefined);
  });

  it('an access token of the provider is no ID token, although it is for the same client', async () => {
    const token = await provider.accessToken({ sub: 'ada' });

    expect(await refusalOf(verify(token))).to.equal('type');
  });

  it('a logout token of the provider is no ID token, whatever its type', async () => {
    const claims = provider.logoutClaims({ sub: 'ada', nonce: 'a nonce' });

    expect(
      await refusalOf(verify(await provider.sign(claims, { header: { typ: 'logout+jwt' } }))),
    ).to.equal('type');
    expect(await refusalOf(verify(await provider.sign(claims)))).to.equal('events');
  });

  const wrongClaims: readonly [title: string, changes: () => object, reason: string][] = [
    ['another issuer by one letter', () => ({ iss: `${provider.issuer}/` }), 'issuer'],
    ['an issuer in capitals', () => ({ iss: provider.issuer.toUpperCase() }), 'issuer'],
    ['no issuer', () => ({ iss: undefined }), 'issuer'],
    ['another audience', () => ({ aud: 'somebody' }), 'audience'],
    ['an audience beside ours', () => ({ aud: [provider.clientIds[0], 'somebody'] }), 'audience'],
    ['no audience', () => ({ aud: [] }), 'audience'],
    ['a client of others as the authorized party', () => ({ azp: 'somebody' }), 'authorized_party'],
    ['a number as the authorized party', () => ({ azp: 1 }), 'authorized_party'],
    ['an end that has passed', () => ({ exp: nowS() - 1 }), 'expired'],
    ['no end', () => ({ exp: undefined }), 'expired'],
    ['an end that is a text', () => ({ exp: `${nowS() + 600}` }), 'expired'],
    ['a begin tomorrow', () => ({ iat: nowS() + 86_400, exp: nowS() + 90_000 }), 'not_yet_valid'],
    [
      'a clock that is five minutes fast',
      () => ({ iat: nowS() + 300, exp: nowS() + 900 }),
      'not_yet_valid',
    ],
    ['a begin of validity tomorrow', () => ({ nbf: nowS() + 86_400 }), 'not_yet_valid'],
    ['an issue eleven minutes ago', () => ({ iat: nowS() - 660 }), 'too_old'],
    ['no time of issue', () => ({ iat: undefined }), 'too_old'],
    ['no nonce', () => ({ nonce: undefined }), 'nonce'],
    ['an empty nonce', () => ({ nonce: '' }), 'nonce'],
    ['no person', () => ({ sub: undefined }), 'subject'],
    ['an empty person', () => ({ sub: '' }), 'subject'],
    ['a person with a zero character', () => ({ sub: 'a\0' }), 'subject'],
    ['a person of 256 characters', () => ({ sub: 'a'.repeat(256) }), 'subject'],
    ['an event', () => ({ events: {} }), 'events'],
  ];
  for (const [title, changes, reason] of wrongClaims) {
    it(`an ID token with ${title} is refused: ${reason}`, async () => {
      expect(await refusalOf(verify(await signed(changes())))).to.equal(reason);
    });
  }

  it('an ID token is accepted from a provider whose clock is half a minute fast or five minutes slow', async () => {
    const fast = await signed({ iat: nowS() + 30 });
    const slow = await signed({ iat: nowS() - 300, exp: nowS() + 300 });

    expect(await refusalOf(verify(fast))).to.equal(undefined);
    expect(await refusalOf(verify(slow))).to.equal(undefined);
  });

  it('an ID token that another key has signed under the name of the present key is refused', async () => {
    expect(await refusalOf(verify(await signed({}, { key: 'other' })))).to.equal('signature');
  });

  it('an ID token whose claims were changed after it was signed is refused', async () => {
    const [header, , signature] = (await signed()).split('.');
    const claims = Buffer.from(JSON.stringify(provider.claims('bob'))).toString('base64url');

    expect(await refusalOf(verify(`${header}.${claims}.${signature}`))).to.equal('signature');
  });

  it('an ID token with an HMAC of the public key is refused', async () => {
    const { kid, n = '' } = provider.publicKey();
    const [header, claims] = [{ alg: 'HS256', kid }, provider.claims('ada')].map(part =>
      Buffer.from(JSON.stringify(part)).toString('base64url'),
    );
    const text = `${header}.${claims}`;
    const secrets = [Buffer.from(n, 'base64url'), JSON.stringify(provider.publicKey())];

    for (const secret of secrets) {
      const mac = createHmac('sha256', secret).update(text).digest('base64url');
      expect(await refusalOf(verify(`${text}.${mac}`))).to.equal('algorithm');
    }
  });

  for (const alg of ['none', 'None', 'HS512', 'RSA1_5', '']) {
    it(`an ID token with the algorithm '${alg}' and no signature is refused`, async () => {
      const parts = [{ alg }, provider.claims('ada')].map(part =>
        Buffer.from(JSON.stringify(part)).toString('base64url'),
      );

      expect(await refusalOf(verify(`${parts.join('.')}.`))).to.equal('algorithm');
    });
  }

  it('an ID token with a header that must be understood, and is not, is refused', async () => {
    const [, claims, signature] = (await signed()).split('.');
    const { kid } = provider.publicKey();
    const header = { alg: 'RS256', kid, crit: ['exp'], exp: 1 };
    const text = Buffer.from(JSON.stringify(header)).toString('base64url');

    expect(await refusalOf(verify(`${text}.${claims}.${signature}`))).to.equal('algorithm');
  });

  it('a key in the header of an ID token, and an address of one, count for nothing', async () => {
    const { kid, ...jwk } = provider.publicKey();
    const header = { kid, jwk, jku: `${provider.issuer}/jwks`, x5u: provider.issuer };

    expect(await refusalOf(verify(await signed({}, { key: 'other', header })))).to.equal(
      'signature',
    );
  });

  for (const type of ['at+jwt', 'logout+jwt', 'jwt', 'application/at+jwt']) {
    it(`a token of the type ${type} is no ID token`, async () => {
      expect(await refusalOf(verify(await signed({}, { header: { typ: type } })))).to.equal('type');
    });
  }

  it('an ID token of the type JWT is accepted', async () => {
    expect(await refusalOf(verify(await signed({}, { header: { typ: 'JWT' } })))).to.equal(
      undefined,
    );
  });

  for (const text of [
    '',
    'a',
    'a.b.c',
    '..',
    'e30.e30.e30',
    'a.b.c.d',
    'W10.e30.e30',
    `${'a'.repeat(20_000)}.a.a`,
  ]) {
    it(`the text ${text.slice(0, 12)} of ${text.length} characters is no token`, async () => {
      expect(await refusalOf(verify(text))).to.be.oneOf(['malformed', 'algorithm']);
      expect(issuerOfToken(text)).to.equal(undefined);
    });
  }

  it('the issuer of a token can be read before it is verified', async () => {
    expect(issuerOfToken(await signed())).to.equal(provider.issuer);
  });

  it('two signatures of the same claims have one hash, and other claims another one', async () => {
    const token = await signed();
    const text = token.slice(0, token.lastIndexOf('.'));
    const [one, two] = [await verify(token), await verify(await signed())];

    const { createHash } = await import('node:crypto');
    expect(one.hash).to.deep.equal(createHash('sha256').update(text).digest());
    expect(one.hash).not.to.deep.equal(two.hash);
  });

  describe('for a logout', () => {
    const verifyLogout = (token: string) => providers.verifyLogoutToken(token, configured);
    const logout = (changes: object, options?: SignOptions) =>
      provider.sign(provider.logoutClaims({ sub: 'ada', ...changes }), options);

    it('a logout token names the person, the session, or both', async () => {
      const both = await verifyLogout(
        await logout({ sid: 'one' }, { header: { typ: 'logout+jwt' } }),
      );
      const session = await verifyLogout(await logout({ sub: undefined, sid: 'one' }));

      expect(both).to.include({ sub: 'ada', sid: 'one' });
      expect(session).to.include({ sub: undefined, sid: 'one' });
    });

    it('an ID token is no logout token', async () => {
      const genuine = await provider.signIn({ sub: 'ada' });
      const event = await signed({ events: provider.logoutClaims({}).events });

      expect(await refusalOf(verifyLogout(genuine))).to.equal('nonce');
      expect(await refusalOf(verifyLogout(event))).to.equal('nonce');
    });

    const wrongLogouts: readonly [title: string, changes: () => object, reason: string][] = [
      ['a nonce', () => ({ nonce: 'a nonce' }), 'nonce'],
      ['no event', () => ({ events: undefined }), 'events'],
      ['another event', () => ({ events: { 'http://example.com/logout': {} } }), 'events'],
      [
        'an event that is a text',
        () => ({
          events: Object.fromEntries(
            Object.keys(provider.logoutClaims({}).events as object).map(name => [name, 'yes']),
          ),
        }),
        'events',
      ],
      ['neither a person nor a session', () => ({ sub: undefined }), 'subject'],
      ['no name', () => ({ jti: undefined }), 'token_id'],
      ['another issuer', () => ({ iss: 'https://example.com' }), 'issuer'],
      ['another audience', () => ({ aud: 'somebody' }), 'audience'],
      ['an issue three minutes ago', () => ({ iat: nowS() - 180 }), 'too_old'],
      ['an issue in five minutes', () => ({ iat: nowS() + 300 }), 'not_yet_valid'],
      ['an end that has passed', () => ({ exp: nowS() - 1 }), 'expired'],
    ];
    for (const [title, changes, reason] of wrongLogouts) {
      it(`a logout token with ${title} is refused: ${reason}`, async () => {
        expect(await refusalOf(verifyLogout(await logout(changes())))).to.equal(reason);
      });
    }

    it('a logout token that another key has signed is refused', async () => {
      expect(await refusalOf(verifyLogout(await logout({}, { key: 'other' })))).to.equal(
        'signature',
      );
    });
  });
});
