import { randomUUID } from 'node:crypto';
import { expect } from 'chai';
import { exportJWK, generateKeyPair, type JWK, SignJWT } from 'jose';
import { readConfig } from '../../../src/lib/config/config.ts';
import { ConfigError } from '../../../src/lib/config/config-error.ts';
import { refusedIssuer } from '../../../src/lib/oidc/issuer.ts';
import type { Provider } from '../../../src/lib/oidc/provider.ts';
import {
  type ProviderFailure,
  ProviderUnavailableError,
  TokenRefusedError,
} from '../../../src/lib/oidc/provider-error.ts';
import { ProviderKeys } from '../../../src/lib/oidc/provider-keys.ts';
import { Providers } from '../../../src/lib/oidc/providers.ts';
import { eventually } from '../../support/eventually.ts';
import { startProvider, type WrongAnswer } from '../../support/identity-provider.ts';
import { use } from '../../support/use.ts';

const tenantGuid = '0f7c1d3e-5b7a-4c59-9d0e-6a1f2b3c4d5e';
const otherTenantGuid = '1f7c1d3e-5b7a-4c59-9d0e-6a1f2b3c4d5e';
const descriptionPath = '/.well-known/openid-configuration';

/** Returns why a token is refused, or why its provider is unavailable; undefined: accepted. */
async function outcomeOf(verified: Promise<unknown>): Promise<string | undefined> {
  try {
    await verified;
    return undefined;
  } catch (error) {
    if (error instanceof TokenRefusedError) return error.reason;
    if (error instanceof ProviderUnavailableError) return `unavailable: ${error.reason}`;
    throw error;
  }
}

describe('the keys of a provider', () => {
  const provider = use(startProvider);
  let offsetS = 0;
  const now = (): number => Math.floor(Date.now() / 1_000) + offsetS;
  const opened: Providers[] = [];

  afterEach(() => {
    offsetS = 0;
    provider.answer(undefined);
    for (const each of opened.splice(0)) each.close();
  });

  const configure = (changes: Partial<Provider> = {}): Provider => ({
    guid: randomUUID(),
    tenantGuid,
    issuer: provider.issuer,
    clientIds: provider.clientIds,
    ...changes,
  });
  const open = (
    options: Partial<ConstructorParameters<typeof Providers>[0]> = {},
    trustedBy = [{ guid: tenantGuid }],
  ): Providers => {
    const { trustedProviders: trusted } = readConfig({
      TRUSTED_PROVIDERS: provider.trustedBy(trustedBy),
    });
    const made = new Providers({ trusted, now, ...options });
    opened.push(made);
    return made;
  };
  const fetches = (): number => provider.requests.filter(path => path === descriptionPath).length;
  const token = (changes: object = {}, header: Record<string, unknown> = {}) =>
    provider.sign(provider.claims('ada', { iat: now(), exp: now() + 600, ...changes }), { header });

  it('keys are fetched once for ten minutes, and by one fetch for all who wait', async () => {
    const providers = open();
    const configured = configure();
    const before = fetches();

    const texts = await Promise.all(Array.from({ length: 20 }, () => token()));
    await Promise.all(texts.map(each => providers.verifyIdToken(each, configured)));
    expect(fetches() - before).to.equal(1);

    offsetS = 9 * 60;
    await providers.verifyIdToken(await token(), configured);
    expect(fetches() - before).to.equal(1);

    offsetS = 11 * 60;
    await providers.verifyIdToken(await token(), configured);
    expect(fetches() - before).to.equal(2);
  });

  it('a token of a new key is accepted once the provider has rotated its keys, at most a minute after the last fetch', async () => {
    const providers = open();
    const configured = configure();
    const early = await token();
    await providers.verifyIdToken(early, configured);
    await provider.rotateKeys();

    expect(await outcomeOf(providers.verifyIdToken(await token(), configured))).to.equal('key');
    offsetS = 61;
    expect(await outcomeOf(providers.verifyIdToken(await token(), configured))).to.equal(undefined);
    expect(await outcomeOf(providers.verifyIdToken(early, configured))).to.equal('key');
  });

  it('tokens of keys that nobody has cause one fetch a minute', async () => {
    const providers = open();
    const configured = configure();
    await providers.verifyIdToken(await token(), configured);
    const before = fetches();

    offsetS = 61;
    for (const kid of ['a', 'b', 'c']) {
      const text = await token({}, { kid });
      expect(await outcomeOf(providers.verifyIdToken(text, configured))).to.equal('key');
    }

    expect(fetches() - before).to.equal(1);
  });

  it('kept keys serve for an hour while the provider is away, and no longer', async () => {
    const failures: (ProviderFailure | undefined)[] = [];
    const providers = open({ onFetch: (_, failure) => void failures.push(failure) });
    const configured = configure();
    await providers.verifyIdToken(await token(), configured);
    provider.answer('error');

    for (const minutes of [11, 30, 59]) {
      offsetS = minutes * 60;
      const outcome = await outcomeOf(providers.verifyIdToken(await token(), configured));
      expect(outcome, `${minutes} minutes`).to.equal(undefined);
    }
    offsetS = 61 * 60;
    const late = await outcomeOf(providers.verifyIdToken(await token(), configured));

    expect(late).to.equal('unavailable: status');
    expect(failures).to.deep.equal([undefined, 'status', 'status', 'status', 'status']);
  });

  it('a provider that is away is asked again after ten seconds, and then serves again', async () => {
    const providers = open();
    const configured = configure();
    provider.answer('error');
    expect(await outcomeOf(providers.verifyIdToken(await token(), configured))).to.equal(
      'unavailable: status',
    );
    const before = fetches();
    provider.answer(undefined);

    expect(await outcomeOf(providers.verifyIdToken(await token(), configured))).to.equal(
      'unavailable: status',
    );
    expect(fetches()).to.equal(before);
    offsetS = 11;
    expect(await outcomeOf(providers.verifyIdToken(await token(), configured))).to.equal(undefined);
  });

  const wrongAnswers: readonly [WrongAnswer, ProviderFailure][] = [
    ['error', 'status'],
    ['html', 'not_json'],
    ['large', 'too_large'],
    ['redirect', 'redirect'],
    ['other-issuer', 'issuer'],
    ['many-keys', 'too_many_keys'],
    ['silent', 'timeout'],
    ['slow', 'timeout'],
  ];
  for (const [answer, failure] of wrongAnswers) {
    it(`a provider that answers wrongly (${answer}) is unavailable: ${failure}`, async () => {
      const timed = failure === 'timeout' ? { maxFetchMs: 300 } : {};
      const providers = open(timed);
      provider.answer(answer);

      const outcome = await outcomeOf(providers.verifyIdToken(await token(), configure()));

      expect(outcome).to.equal(`unavailable: ${failure}`);
    });
  }

  it('of an answer of 100 MB, little more than 64 KiB leaves the provider', async () => {
    provider.answer('large');

    await outcomeOf(open().verifyIdToken(await token(), configure()));

    expect(provider.largeBytes).to.be.below(20 * 1024 * 1024);
  });

  it('a key of 16,384 bits is unknown, and the others of its provider are good', async () => {
    const providers = open();
    const configured = configure();
    provider.answer('large-key');

    const large = await token({}, { kid: 'large' });
    expect(await outcomeOf(providers.verifyIdToken(large, configured))).to.equal('key');
    expect(await outcomeOf(providers.verifyIdToken(await token(), configured))).to.equal(undefined);
  });

  it('a provider whose certificate nobody vouches for is unavailable', async () => {
    const { default: tls } = await import('node:tls');
    const trusted = tls.getCACertificates('default');
    tls.setDefaultCACertificates(tls.getCACertificates('bundled'));

    try {
      const outcome = await outcomeOf(open().verifyIdToken(await token(), configure()));
      expect(outcome).to.equal('unavailable: tls');
    } finally {
      tls.setDefaultCACertificates(trusted);
    }
  });

  it('an exception for one tenant is none for another, and nothing is fetched for it', async () => {
    const providers = open();
    const before = provider.requests.length;

    const outcome = await outcomeOf(
      providers.verifyIdToken(await token(), configure({ tenantGuid: otherTenantGuid })),
    );

    expect(outcome).to.equal('unavailable: refused_address');
    expect(provider.requests).to.have.length(before);
  });

  it('an exception for receivers of webhooks is none for providers', async () => {
    const { trustedProviders } = readConfig({
      WEBHOOK_TRUSTED_RECEIVERS: `${tenantGuid}=${provider.issuer}/`,
    });
    const providers = new Providers({ trusted: trustedProviders, now });
    opened.push(providers);

    const outcome = await outcomeOf(providers.verifyIdToken(await token(), configure()));

    expect(outcome).to.equal('unavailable: refused_address');
  });

  it('a name that leads to a private address is refused, unless the operator trusts its origin', async () => {
    const isAllowed = (): boolean => false;
    const resolve = async () => [{ address: '10.0.0.1', family: 4 }];
    const configured = configure({ issuer: 'https://sso.example.com' });
    const claims = provider.claims('ada', { iss: configured.issuer });

    const providers = open({ isAllowed, resolve });
    const outcome = await outcomeOf(
      providers.verifyIdToken(await provider.sign(claims), configured),
    );

    expect(outcome).to.equal('unavailable: refused_address');
  });

  it('a tenant whose providers are silent does not delay those of another one, nor more than five fetches at a time', async () => {
    const providers = open({ maxFetchMs: 60_000 }, [{ guid: tenantGuid }]);
    const text = await token();
    provider.answer('silent');
    const waiting = Array.from({ length: 5 }, () => providers.verifyIdToken(text, configure()));
    const ended = Promise.allSettled(waiting);
    await eventually(async () => provider.waiting === 5);

    expect(await outcomeOf(providers.verifyIdToken(text, configure()))).to.equal(
      'unavailable: busy',
    );
    const ofOther = configure({ tenantGuid: otherTenantGuid });
    expect(await outcomeOf(providers.verifyIdToken(text, ofOther))).to.equal(
      'unavailable: refused_address',
    );

    providers.close();
    const outcomes = (await ended).map(({ status }) => status);
    expect(outcomes).to.deep.equal(Array.from({ length: 5 }, () => 'rejected'));
  });

  it('kept keys serve at once while another one waits for a provider that is silent', async () => {
    const providers = open({ maxFetchMs: 60_000 });
    const known = configure();
    await providers.verifyIdToken(await token(), known);
    provider.answer('silent');
    const text = await token();
    const silent = providers.verifyIdToken(text, configure()).catch(() => 'ended');
    await eventually(async () => provider.waiting === 1);

    expect(await outcomeOf(providers.verifyIdToken(await token(), known))).to.equal(undefined);

    providers.close();
    expect(await silent).to.equal('ended');
  });

  it('keys of one configuration are not used for another one of the same issuer', async () => {
    const fetched: string[] = [];
    const keys = new ProviderKeys({
      now,
      onFetch: () => {},
      fetch: async ({ guid }) => {
        fetched.push(guid);
        return [{ kty: 'RSA', kid: guid }];
      },
    });
    const [one, two] = [configure(), configure()];

    expect((await keys.read(one))[0]?.kid).to.equal(one.guid);
    expect((await keys.read(two))[0]?.kid).to.equal(two.guid);
    expect((await keys.read(one))[0]?.kid).to.equal(one.guid);
    expect(fetched).to.deep.equal([one.guid, two.guid]);
  });

  for (const alg of ['RS512', 'PS256', 'ES256', 'ES384', 'ES512', 'EdDSA']) {
    it(`a token with the algorithm ${alg} is accepted`, async () => {
      const pair = await generateKeyPair(alg, { extractable: true });
      const jwk: JWK = { ...(await exportJWK(pair.publicKey)), kid: alg, alg, use: 'sig' };
      const { verifySignature } = await import('../../../src/lib/oidc/verify-token.ts');
      const keys = { read: async () => [jwk], readAgain: async () => undefined };

      const text = await new SignJWT(provider.claims('ada'))
        .setProtectedHeader({ alg, kid: alg })
        .sign(pair.privateKey);
      const { claims } = await verifySignature(text, configure(), keys);

      expect(claims.sub).to.equal('ada');
    });
  }
});

describe('the address of a provider', () => {
  const refused = [
    'http://sso.example.com',
    'https://sso.example.com?x=1',
    'https://sso.example.com#x',
    'https://user@sso.example.com',
    'https://10.0.0.1',
    'https://[::1]',
    'https://localhost',
    'https://sso',
    'https://sso.example.com:8080',
    'sso.example.com',
    '',
  ];
  for (const issuer of refused) {
    it(`'${issuer}' is no issuer`, () => {
      expect(refusedIssuer(issuer, tenantGuid, [])).to.be.a('string');
    });
  }

  it('an https URL at a public name is one, with a path too', () => {
    for (const issuer of ['https://sso.example.com', 'https://sso.example.com/realms/acme']) {
      expect(refusedIssuer(issuer, tenantGuid, [])).to.equal(undefined);
    }
  });

  it('TRUSTED_PROVIDERS allows an origin to one tenant, and neither http nor a query', () => {
    const { trustedProviders: trusted } = readConfig({
      TRUSTED_PROVIDERS: `${tenantGuid.toUpperCase()}=https://sso:9443, ${tenantGuid}=https://10.0.0.1`,
    });

    expect(refusedIssuer('https://sso:9443/realms/acme', tenantGuid, trusted)).to.equal(undefined);
    expect(refusedIssuer('https://10.0.0.1', tenantGuid, trusted)).to.equal(undefined);
    expect(refusedIssuer('https://sso:9443', otherTenantGuid, trusted)).to.be.a('string');
    expect(refusedIssuer('http://sso:9443', tenantGuid, trusted)).to.be.a('string');
    expect(refusedIssuer('https://sso:9443?x', tenantGuid, trusted)).to.be.a('string');
    expect(refusedIssuer('https://sso:9444', tenantGuid, trusted)).to.be.a('string');
  });

  const malformed = [
    'https://sso.example.com',
    `${tenantGuid}=http://sso.example.com`,
    `${tenantGuid}=https://sso.example.com/realms`,
    `${tenantGuid}=https://user@sso.example.com`,
    `${tenantGuid}=https://sso.example.com?x`,
    `acme=https://sso.example.com`,
  ];
  for (const text of malformed) {
    it(`TRUSTED_PROVIDERS refuses '${text}'`, () => {
      expect(() => readConfig({ TRUSTED_PROVIDERS: text })).to.throw(
        ConfigError,
        'TRUSTED_PROVIDERS',
      );
    });
  }
});
