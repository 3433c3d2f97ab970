import { createHash, randomBytes } from 'node:crypto';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import tls from 'node:tls';
import { type CryptoKey, exportJWK, generateKeyPair, type JWK, SignJWT } from 'jose';
import OidcProvider, { type Configuration } from 'oidc-provider';
import { makeCertificate } from './certificate.ts';
import { CookieJar } from './cookie-jar.ts';
import { readWorldTemplate } from './world-template.ts';

/** What a provider knows of a person, as claims of its ID tokens. */
export type PersonClaims = { readonly sub: string } & Readonly<Record<string, unknown>>;

/** The ways in which a provider answers wrongly that is asked for its description or keys. */
export type WrongAnswer =
  | 'silent'
  | 'slow'
  | 'error'
  | 'html'
  | 'large'
  | 'redirect'
  | 'other-issuer'
  | 'many-keys'
  | 'large-key';

export interface SignOptions {
  readonly header?: Readonly<Record<string, unknown>>;
  /** The provider's present key, one that it has never had, or a secret for HMAC. */
  readonly key?: 'present' | 'other' | Uint8Array;
}

interface SignInOptions {
  readonly clientId?: string;
  /** Null: none. */
  readonly nonce?: string | null;
  readonly amr?: readonly string[];
}

export interface TestProvider {
  readonly issuer: string;
  /** Two public clients, which anybody may have at one provider. */
  readonly clientIds: readonly [string, string];
  /** TRUSTED_PROVIDERS for the tenants that every world has. */
  readonly trusted: string;
  /** TRUSTED_PROVIDERS for these tenants. */
  trustedBy(tenants: readonly { guid: string }[]): string;
  /** The paths of all requests, in the order of arrival. */
  readonly requests: string[];
  /** The bytes of the last large answer that left the provider. */
  readonly largeBytes: number;
  /** The origin of a page that signs in by itself, to which sign-ins lead back. */
  allowPage(origin: string): void;
  /** Sends logout tokens to this address from now on, as the client has it registered. */
  sendLogoutsTo(uri: string, clientId?: string): void;
  /**
   * Signs a person in by the authorization code flow with PKCE.
   * @returns the ID token
   */
  signIn(person: PersonClaims, options?: SignInOptions): Promise<string>;
  /** Lets a person sign in wherever a request does not say who does. */
  expect(person: PersonClaims): void;
  /**
   * Follows an address of the provider as the browser of a person does.
   * @returns the address to which the provider leads back
   */
  browse(url: URL, person: PersonClaims): Promise<URL>;
  /** The address to which the sign-ins of this process lead back. */
  readonly callback: string;
  /** Signs a person in, and returns the access token, which is a JWT of this provider. */
  accessToken(person: PersonClaims): Promise<string>;
  /** Signs a person out, who has signed in before; clients get logout tokens. */
  signOut(person: Pick<PersonClaims, 'sub'>): Promise<void>;
  /** The claims of a good ID token of now, and the changes. */
  claims(sub: string, changes?: Readonly<Record<string, unknown>>): Record<string, unknown>;
  /** The claims of a good logout token of now, and the changes. */
  logoutClaims(changes: Readonly<Record<string, unknown>>): Record<string, unknown>;
  /** Returns a token with any claims. */
  sign(claims: Readonly<Record<string, unknown>>, options?: SignOptions): Promise<string>;
  /** The public key, in the form that an attacker has it. */
  publicKey(): JWK;
  /** Replaces the key: the former one is gone from the set of keys at once. */
  rotateKeys(): Promise<void>;
  /** Answers requests for the description and keys in this way; undefined: rightly. */
  answer(how: WrongAnswer | undefined): void;
  /** The number of requests that wait for an answer in vain. */
  readonly waiting: number;
  close(): Promise<void>;
}

const callback = 'http://127.0.0.1/callback';
const clientIds = ['back-office', 'other-application'] as const;
const scopes = 'openid email profile';
const answeredWrongly = /^\/(?:\.well-known\/openid-configuration|jwks)$/;
const logoutEvent = 'http://schemas.openid.net/event/backchannel-logout';

interface SigningKey {
  readonly kid: string;
  readonly privateKey: CryptoKey;
  readonly privateJwk: JWK;
  readonly publicJwk: JWK;
}

/**
 * Starts a provider of OpenID Connect on the loopback interface, over https: `oidc-provider`,
 * which is certified. This process trusts its certificate from then on. People sign in without a
 * password: `login_hint` says who they are.
 */
export async function startProvider(): Promise<TestProvider> {
  const { cert, key } = await trustedCertificate();
  let signing = await makeKey();
  const other = await makeKey(signing.kid);
  const people = new Map<string, PersonClaims>();
  const methods = new Map<string, readonly string[]>();
  const jars = new Map<string, CookieJar>();
  const origins = new Set<string>();
  const logoutUris = new Map<string, string>();
  const requests: string[] = [];
  const held = new Set<ServerResponse>();
  let expected = '';
  let wrong: WrongAnswer | undefined;
  let largeBytes = 0;
  let issuer = '';
  let provider: OidcProvider;

  const configuration = (): Configuration => ({
    clients: clientIds.map(client_id => ({
      client_id,
      application_type: 'native',
      token_endpoint_auth_method: 'none',
      grant_types: ['authorization_code'],
      response_types: ['code'],
      redirect_uris: [callback, ...[...origins].map(origin => `${origin}/`)],
      ...(logoutUris.has(client_id)
        ? {
            backchannel_logout_uri: logoutUris.get(client_id)!,
            backchannel_logout_session_required: true,
          }
        : {}),
    })),
    jwks: { keys: [signing.privateJwk] },
    cookies: { keys: ['a key of a test'] },
    claims: {
      openid: ['sub', 'hd'],
      email: ['email', 'email_verified'],
      profile: ['name', 'given_name', 'family_name'],
      amr: null,
      sid: null,
    },
    conformIdTokenClaims: false,
    // The service of a test is at an address that the provider's own guard refuses.
    fetch: (url, { method = 'GET', headers = {}, body = null } = {}) =>
      fetch(url, { method, headers, body }),
    clientBasedCORS: (_ctx, origin) => origins.has(origin),
    features: {
      devInteractions: { enabled: false },
      claimsParameter: { enabled: true },
      backchannelLogout: { enabled: true },
      resourceIndicators: {
        enabled: true,
        defaultResource: (_ctx, _client, oneOf) => oneOf?.[0] ?? [],
        useGrantedResource: () => false,
        getResourceServerInfo: () => ({
          scope: 'read',
          audience: clientIds[0],
          accessTokenFormat: 'jwt',
          jwt: { sign: { alg: 'RS256' } },
        }),
      },
    },
    findAccount: (_ctx, id) => ({
      accountId: id,
      claims: () => ({ ...people.get(id), sub: id }),
    }),
    loadExistingGrant: async ctx => {
      const { client, session, params } = ctx.oidc;
      const grant = new ctx.oidc.provider.Grant({
        clientId: client!.clientId,
        accountId: session!.accountId!,
      });
      grant.addOIDCScope(scopes);
      const resource = params?.resource;
      if (typeof resource === 'string') grant.addResourceScope(resource, 'read');
      await grant.save();
      return grant;
    },
    interactions: { url: (_ctx, { uid }) => `/interaction/${uid}` },
  });

  const replaceProvider = (): void => {
    provider = new OidcProvider(issuer, configuration());
  };

  /** Ends the interaction with the person that `login_hint` names. */
  const finishInteraction = async (request: IncomingMessage, response: ServerResponse) => {
    const { params } = await provider.interactionDetails(request, response);
    const accountId = String(params.login_hint ?? expected);
    const amr = [...(methods.get(accountId) ?? [])];
    await provider.interactionFinished(request, response, {
      login: { accountId, amr },
      consent: {}, // a public client asks for it each time
    });
  };

  const answerWrongly = (path: string, how: WrongAnswer, response: ServerResponse): void => {
    const json = (body: object): void => {
      response.writeHead(200, { 'Content-Type': 'application/json' }).end(JSON.stringify(body));
    };
    const isKeys = path === '/jwks';
    const description = { issuer, jwks_uri: `${issuer}/jwks` };
    const keys = [signing.publicJwk];

    switch (how) {
      case 'silent':
        held.add(response);
        response.on('close', () => held.delete(response));
        return;
      case 'slow': {
        response.writeHead(200, { 'Content-Type': 'application/json' });
        const timer = setInterval(() => response.write(' '), 20);
        response.on('close', () => clearInterval(timer));
        return;
      }
      case 'error':
        response.writeHead(500).end('{}');
        return;
      case 'html':
        response.writeHead(200, { 'Content-Type': 'text/html' }).end('<h1>Maintenance</h1>');
        return;
      case 'redirect':
        response.writeHead(302, { Location: 'https://10.0.0.1/' }).end();
        return;
      case 'large':
        largeBytes = 0;
        writeLarge(response, bytes => {
          largeBytes += bytes;
        });
        return;
      case 'other-issuer':
        json(isKeys ? { keys } : { ...description, issuer: `${issuer}/` });
        return;
      case 'many-keys':
        json(
          isKeys
            ? { keys: Array.from({ length: 21 }, (_, at) => ({ ...keys[0], kid: `${at}` })) }
            : description,
        );
        return;
      case 'large-key': {
        const n = Buffer.concat([Buffer.from([0x80]), randomBytes(2_047)]).toString('base64url');
        json(
          isKeys
            ? {
                keys: [
                  { kty: 'RSA', kid: 'large', use: 'sig', alg: 'RS256', n, e: 'AQAB' },
                  ...keys,
                ],
              }
            : description,
        );
      }
    }
  };

  const server = createServer({ cert, key }, (request, response) => {
    const { pathname } = new URL(request.url ?? '', issuer);
    requests.push(pathname);
    if (wrong && answeredWrongly.test(pathname)) {
      answerWrongly(pathname, wrong, response);
    } else if (pathname.startsWith('/interaction/')) {
      void finishInteraction(request, response).catch(() => response.destroy());
    } else {
      void provider.callback()(request, response);
    }
  });
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  issuer = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
  replaceProvider();

  const jarOf = (sub: string): CookieJar => {
    const jar = jars.get(sub) ?? new CookieJar();
    jars.set(sub, jar);
    return jar;
  };

  /** Returns what the token endpoint gives after a sign-in. */
  const authorize = async (
    person: PersonClaims,
    {
      clientId = clientIds[0],
      nonce = randomBytes(16).toString('base64url'),
      amr = [],
      resource = '',
    }: SignInOptions & { resource?: string } = {},
  ): Promise<{ id_token: string; access_token: string }> => {
    people.set(person.sub, person);
    methods.set(person.sub, amr);
    const verifier = randomBytes(32).toString('base64url');
    const query = new URLSearchParams({
      client_id: clientId,
      response_type: 'code',
      redirect_uri: callback,
      scope: resource ? `${scopes} read` : scopes,
      state: 'a state',
      login_hint: person.sub,
      prompt: 'login',
      code_challenge: createHash('sha256').update(verifier).digest('base64url'),
      code_challenge_method: 'S256',
      claims: JSON.stringify({ id_token: amr.length > 0 ? { amr: null } : {} }),
      ...(nonce === null ? {} : { nonce }),
      ...(resource ? { resource } : {}),
    });

    const end = await jarOf(person.sub).follow(`${issuer}/auth?${query}`, callback);
    const response = await fetch(`${issuer}/token`, {
      method: 'POST',
      body: new URLSearchParams({
        grant_type: 'authorization_code',
        code: end.searchParams.get('code') ?? '',
        redirect_uri: callback,
        client_id: clientId,
        code_verifier: verifier,
        ...(resource ? { resource } : {}),
      }),
    });
    if (response.status !== 200) throw new Error(`${end} ${await response.text()}`);

    return (await response.json()) as { id_token: string; access_token: string };
  };

  const trustedBy = (tenants: readonly { guid: string }[]): string =>
    tenants.map(({ guid }) => `${guid}=${issuer}`).join();

  const nowS = (): number => Math.floor(Date.now() / 1_000);

  return {
    issuer,
    clientIds,
    trusted: trustedBy(readWorldTemplate().tenants),
    trustedBy,
    requests,
    get largeBytes() {
      return largeBytes;
    },
    get waiting() {
      return held.size;
    },
    allowPage: origin => {
      origins.add(origin);
      replaceProvider();
    },
    sendLogoutsTo: (uri, clientId = clientIds[0]) => {
      logoutUris.set(clientId, uri);
      replaceProvider();
    },
    signIn: async (person, options) => (await authorize(person, options)).id_token,
    expect: person => {
      people.set(person.sub, person);
      expected = person.sub;
    },
    browse: (url, person) => {
      people.set(person.sub, person);
      url.searchParams.set('login_hint', person.sub);
      return jarOf(person.sub).follow(url.href, callback);
    },
    callback,
    accessToken: async person =>
      (await authorize(person, { resource: 'urn:test:api' })).access_token,
    signOut: async ({ sub }) => {
      const jar = jarOf(sub);
      const page = await (await jar.fetch(`${issuer}/session/end`)).text();
      const [, xsrf = ''] = /name="xsrf" value="([^"]+)"/.exec(page) ?? [];
      const response = await jar.fetch(`${issuer}/session/end/confirm`, {
        method: 'POST',
        body: new URLSearchParams({ xsrf, logout: 'yes' }),
      });
      if (response.status >= 400) throw new Error(await response.text());
      jars.delete(sub);
    },
    claims: (sub, changes = {}) => ({
      iss: issuer,
      aud: clientIds[0],
      sub,
      iat: nowS(),
      exp: nowS() + 600,
      nonce: randomBytes(16).toString('base64url'),
      ...changes,
    }),
    logoutClaims: changes => ({
      iss: issuer,
      aud: clientIds[0],
      iat: nowS(),
      exp: nowS() + 120,
      jti: randomBytes(16).toString('base64url'),
      events: { [logoutEvent]: {} },
      ...changes,
    }),
    sign: (claims, { header = {}, key: by = 'present' } = {}) => {
      const { kid, privateKey } = by === 'other' ? other : signing;
      return new SignJWT(claims)
        .setProtectedHeader({ alg: 'RS256', kid, ...header })
        .sign(by instanceof Uint8Array ? by : privateKey);
    },
    publicKey: () => signing.publicJwk,
    rotateKeys: async () => {
      signing = await makeKey();
      replaceProvider();
    },
    answer: how => {
      wrong = how;
      for (const response of held) response.destroy();
    },
    close: async () => {
      server.closeAllConnections();
      await new Promise(resolve => server.close(resolve));
    },
  };
}

async function makeKey(kid = randomBytes(8).toString('hex')): Promise<SigningKey> {
  const { privateKey, publicKey } = await generateKeyPair('RS256', { extractable: true });
  const common = { kid, alg: 'RS256', use: 'sig' };

  return {
    kid,
    privateKey,
    privateJwk: { ...(await exportJWK(privateKey)), ...common },
    publicJwk: { ...(await exportJWK(publicKey)), ...common },
  };
}

/** Writes 100 MB, as fast as they are read. */
function writeLarge(response: ServerResponse, onWrite: (bytes: number) => void): void {
  const chunk = Buffer.alloc(64 * 1024, ' ');
  const maxLarge = 100 * 1024 * 1024;
  let left = maxLarge;

  const write = (): void => {
    while (left > 0 && !response.destroyed) {
      left -= chunk.length;
      onWrite(chunk.length);
      if (!response.write(chunk)) return;
    }
    response.end();
  };
  response.writeHead(200, { 'Content-Type': 'application/json' });
  response.on('drain', write);
  write();
}

/** Makes a certificate for 127.0.0.1 that connections of this process trust. */
async function trustedCertificate(): Promise<{ cert: string; key: string }> {
  const folder = await mkdtemp(join(tmpdir(), 'provider-'));
  const files = [join(folder, 'certificate'), join(folder, 'key')] as const;

  try {
    await makeCertificate('127.0.0.1', files);
    const [cert = '', key = ''] = await Promise.all(files.map(file => readFile(file, 'utf8')));
    tls.setDefaultCACertificates([...tls.getCACertificates('default'), cert]);

    return { cert, key };
  } finally {
    await rm(folder, { recursive: true });
  }
}
