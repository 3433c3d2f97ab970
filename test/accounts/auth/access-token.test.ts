import { randomBytes, randomUUID } from 'node:crypto';
import { request } from 'node:http';
import { createServer } from 'node:net';
import { expect } from 'chai';
import jwt from 'jsonwebtoken';
import {
  accessTokenLifetimeSeconds,
  clockSkewSeconds,
} from '../../../src/control/token-lifetime.ts';
import { Random } from '../../simulation/random.ts';
import type { ApiResponse, Client } from '../../support/client.ts';
import { announcedMs, eventually } from '../../support/eventually.ts';
import { controlSql, createWorld, type World } from '../../support/world.ts';
import {
  activeKey,
  addKey,
  claimsOf,
  encodeSegment,
  forgeToken,
  resignToken,
  type TenantKey,
} from './forge.ts';
import { comparable } from './responses.ts';
import { addSampleUser } from './sample-users.ts';

const me = '/api/v1/auth/me';
/** Far below the time limits of connections, far above what a busy machine takes. */
const maxRefusalMs = 10_000;

/** The means of a forgery of the tables below: far more than a real attacker has. */
interface Forger {
  acme: TenantKey;
  globex: TenantKey;
  /** A valid token. */
  token: string;
  /** Header and claims of that token. */
  header: Record<string, unknown>;
  claims: Record<string, unknown>;
  now: number;
  /** Makes a token that is valid except for these changes. Signs with acme's key by default. */
  make(changes: Changes): string;
  sessions: { otherUser: string; otherTenant: string; revoked: string };
  otherUserGuid: string;
  globexId: number;
  globexGuid: string;
  acmeGuid: string;
  /** A URL on this machine that counts connections. */
  listener: string;
}

interface Changes {
  header?: unknown;
  claims?: unknown;
  secret?: string | Buffer;
  hash?: string;
}

type Forgery = [name: string, forge: (forger: Forger) => string];

const algorithms: Forgery[] = [
  ...['none', 'None', 'NONE', 'nOnE'].flatMap((alg): Forgery[] => [
    [
      `alg ${alg}, without a signature`,
      f => `${encodeSegment({ ...f.header, alg })}.${encodeSegment(f.claims)}.`,
    ],
    [
      `alg ${alg}, with a signature`,
      f =>
        `${encodeSegment({ ...f.header, alg })}.${encodeSegment(f.claims)}.${f.token.split('.')[2]}`,
    ],
  ]),
  ...(['HS256', 'HS384'] as const).map(
    (alg): Forgery => [
      `${alg} with the right key`,
      f => jwt.sign(f.claims, f.acme.secret, { algorithm: alg, header: { ...f.header, alg } }),
    ],
  ),
  ...[undefined, 'hs512', ['HS512'], null, 0, true, {}, 'RS512', 'HS512 '].map(
    (alg): Forgery => [`alg ${JSON.stringify(alg)}`, f => f.make({ header: { ...f.header, alg } })],
  ),
  ['HS512 in the header, HS256 in the signature', f => f.make({ hash: 'sha256' })],
  ...[undefined, 'JWT', null, 0, ['at+jwt'], 'id+jwt'].map(
    (typ): Forgery => [`typ ${JSON.stringify(typ)}`, f => f.make({ header: { ...f.header, typ } })],
  ),
];

const strangeKids = [
  undefined,
  null,
  '',
  '../../../../dev/null',
  '/dev/null',
  `x' UNION SELECT '1';--`,
  '|sleep 10',
  ['a'],
  { a: 1 },
  'k'.repeat(2_000),
  'k'.repeat(5_000),
  '__proto__',
  'constructor',
  randomUUID(),
];

const keys: Forgery[] = [
  ...strangeKids.flatMap((kid): Forgery[] => {
    const name = `kid ${(JSON.stringify(kid) ?? 'missing').slice(0, 30)}`;
    return [
      [
        `${name}, signed with the empty key`,
        f => f.make({ header: { ...f.header, kid }, secret: '' }),
      ],
      [`${name}, signed with "1"`, f => f.make({ header: { ...f.header, kid }, secret: '1' })],
      [`${name}, signed with the right key`, f => f.make({ header: { ...f.header, kid } })],
    ];
  }),
  ['the right kid in an array', f => f.make({ header: { ...f.header, kid: [f.acme.kid] } })],
  [
    "another tenant's kid and key",
    f => f.make({ header: { ...f.header, kid: f.globex.kid }, secret: f.globex.secret }),
  ],
  ["another tenant's key with our kid", f => f.make({ secret: f.globex.secret })],
  [
    "our key with another tenant's kid",
    f => f.make({ header: { ...f.header, kid: f.globex.kid } }),
  ],
  ...[
    '',
    '1',
    'secret',
    'changeme',
    'password',
    'your-256-bit-secret',
    'acme',
    'acme Ltd',
    'sales-back-office',
  ].map((secret): Forgery => [`signed with "${secret}"`, f => f.make({ secret })]),
  ["signed with the tenant's guid", f => f.make({ secret: f.acmeGuid })],
  ['signed with the kid', f => f.make({ secret: f.acme.kid })],
  ['signed with 64 zero bytes', f => f.make({ secret: Buffer.alloc(64) })],
  // Without its first byte: HMAC pads keys with zeros, so without a final zero byte it would be
  // the same key (RFC 2104 §2).
  [
    'signed with the right key without its first byte',
    f => f.make({ secret: f.acme.secret.subarray(1) }),
  ],
  [
    'signed with the right key in base64',
    f => f.make({ secret: f.acme.secret.toString('base64') }),
  ],
];

const headers: Forgery[] = [
  ...(
    [
      ['jku', (f: Forger) => f.listener],
      ['x5u', (f: Forger) => f.listener],
      [
        'jwk',
        (f: Forger) => ({ kty: 'oct', k: f.acme.secret.toString('base64url'), alg: 'HS512' }),
      ],
      ['x5c', () => ['MIIB']],
      ['crit', () => ['x']],
      ['crit', () => ['exp']],
      ['crit', () => []],
      ['b64', () => false],
      ['zip', () => 'DEF'],
      ['cty', () => 'JWT'],
      ['enc', () => 'A256GCM'],
      ['__proto__x', () => 1],
    ] as const
  ).map(
    ([name, value]): Forgery => [
      `${name} in the header, signed with the right key`,
      f => f.make({ header: { ...f.header, [name]: value(f) } }),
    ],
  ),
  ...['not json', 'null', '"x"', '[]', '42', '', '{"alg":"HS512"', '[{"alg":"HS512"}]'].map(
    (header): Forgery => [`header ${header || 'empty'}`, f => f.make({ header })],
  ),
];

const shapes: Forgery[] = [
  ['no signature', f => f.token.split('.').slice(0, 2).join('.')],
  ['an empty signature', f => `${f.token.split('.').slice(0, 2).join('.')}.`],
  ['a signature without its last 4 characters', f => f.token.slice(0, -4)],
  [
    'a signature with one bit flipped',
    f => withSignature(f.token, bytes => (bytes[10] = bytes[10]! ^ 1)),
  ],
  ['a signature with base64 padding', f => `${f.token}==`],
  ['a signature in hexadecimal', f => withSignature(f.token, () => {}, 'hex')],
  [
    "another token's signature",
    f =>
      [
        ...f.token.split('.').slice(0, 2),
        f.make({ claims: { ...f.claims, jti: 'x' } }).split('.')[2],
      ].join('.'),
  ],
  [
    'a changed payload with the original signature',
    f =>
      f.token.replace(
        /\.[^.]+\./,
        `.${encodeSegment({ ...f.claims, permissions: ['full.manage'] })}.`,
      ),
  ],
  ['1 segment', f => f.token.split('.')[0]!],
  ['2 segments', f => f.token.split('.').slice(1).join('.')],
  ['4 segments', f => `${f.token}.${f.token.split('.')[2]}`],
  ['4 segments, the first empty', f => `.${f.token}`],
  [
    '5 segments',
    f => `${encodeSegment({ alg: 'dir', enc: 'A256GCM', kid: f.acme.kid })}..AAAA.AAAA.AAAA`,
  ],
  ['two dots', () => '..'],
  ['one dot', () => '.'],
  ['four dots', () => '....'],
  ['a text that is no token', () => 'not-a-token'],
  ['two tokens', f => `${f.token} ${f.token}`],
  ['two tokens with a comma', f => `${f.token},${f.token}`],
  ['the token in quotes', f => `"${f.token}"`],
  ['a character that is not ASCII at the end', f => `${f.token}\u00a0`],
  ['a line break in base64', f => `${f.token.slice(0, 10)}%0a${f.token.slice(10)}`],
  [
    'more than 4 KB, correctly signed',
    f => f.make({ claims: { ...f.claims, padding: 'x'.repeat(4_000) } }),
  ],
  ['12 KB, correctly signed', f => f.make({ claims: { ...f.claims, padding: 'x'.repeat(9_000) } })],
];

const payloads: Forgery[] = [
  ...['null', '42', '[]', '"s"', 'true', '', 'not json', '{', '[{}]'].flatMap(
    (payload): Forgery[] => [
      [
        `payload ${payload || 'empty'}, unsigned`,
        f => `${encodeSegment(f.header)}.${encodeSegment(payload)}.x`,
      ],
      [`payload ${payload || 'empty'}, correctly signed`, f => f.make({ claims: payload })],
    ],
  ),
];

const claims: Forgery[] = [
  ...(
    [
      ['an array', f => [f.acmeGuid]],
      ['an object', f => ({ guid: f.acmeGuid })],
      ['a number', () => 1],
      ['null', () => null],
      ['missing', () => undefined],
      ['empty', () => ''],
      ['in braces', f => `{${f.acmeGuid}}`],
      ['with spaces', f => ` ${f.acmeGuid} `],
      ['with a line feed', f => `${f.acmeGuid}\n`],
      ['as a URN', f => `urn:uuid:${f.acmeGuid}`],
      ['without dashes', f => f.acmeGuid.replaceAll('-', '')],
      ['in upper case', f => f.acmeGuid.toUpperCase()],
      ['__proto__', () => '__proto__'],
      ['constructor', () => 'constructor'],
      ['the slug', () => 'acme'],
      ['of no tenant', () => randomUUID()],
      ['the nil UUID', () => '00000000-0000-0000-0000-000000000000'],
      ['nested deeply', () => JSON.parse(`${'['.repeat(1_000)}${']'.repeat(1_000)}`)],
      ['of another tenant, with our key and kid', f => f.globexGuid],
    ] as [string, (f: Forger) => unknown][]
  ).map(
    ([name, guid]): Forgery => [
      `tenant_guid ${name}`,
      f => f.make({ claims: { ...f.claims, tenant_guid: guid(f) } }),
    ],
  ),
  ...(
    [
      ['of another tenant', f => f.globexId],
      ['as a string', f => String(f.claims.tenant_id)],
      ['missing', () => undefined],
      ['null', () => null],
    ] as [string, (f: Forger) => unknown][]
  ).map(
    ([name, id]): Forgery => [
      `tenant_id ${name}`,
      f => f.make({ claims: { ...f.claims, tenant_id: id(f) } }),
    ],
  ),
  ...(
    [
      [
        'iss',
        [
          'http://evil.test',
          'http://backoffice.test/',
          'HTTP://BACKOFFICE.TEST',
          '',
          null,
          undefined,
          ['http://backoffice.test'],
        ],
      ],
      [
        'aud',
        [
          'other',
          'Sales-Back-Office',
          '',
          null,
          undefined,
          ['sales-back-office'],
          ['x', 'sales-back-office'],
          { 0: 'sales-back-office' },
        ],
      ],
      ['iat', [undefined, null, '1', -1.5, 1.5]],
      ['nbf', [null, '1', 1.5, true, [1], {}]],
      ['jti', [undefined, null, 7, ['x']]],
      ['sub', [undefined, null, 'x', randomUUID()]],
      ['user_guid', [undefined, null, 1, '', randomUUID()]],
      [
        'sid',
        [
          undefined,
          null,
          '',
          1,
          'x',
          '__proto__',
          randomUUID(),
          '00000000-0000-0000-0000-000000000000',
          `' or true --`,
        ],
      ],
    ] as [string, unknown[]][]
  ).flatMap(([claim, values]) =>
    values.map(
      (value): Forgery => [
        `${claim} ${JSON.stringify(value) ?? 'missing'}`,
        f => f.make({ claims: { ...f.claims, [claim]: value } }),
      ],
    ),
  ),
  [
    'tenant_guid and kid of another tenant, our key',
    f =>
      f.make({
        header: { ...f.header, kid: f.globex.kid },
        claims: { ...f.claims, tenant_guid: f.globexGuid },
      }),
  ],
  [
    'tenant_guid and key of another tenant, our kid',
    f => f.make({ claims: { ...f.claims, tenant_guid: f.globexGuid }, secret: f.globex.secret }),
  ],
  [
    'tenant_guid, key and kid of another tenant, the rest ours',
    f =>
      f.make({
        header: { ...f.header, kid: f.globex.kid },
        claims: { ...f.claims, tenant_guid: f.globexGuid },
        secret: f.globex.secret,
      }),
  ],
  [
    'sid in upper case',
    f => f.make({ claims: { ...f.claims, sid: String(f.claims.sid).toUpperCase() } }),
  ],
  ['sid in an array', f => f.make({ claims: { ...f.claims, sid: [f.claims.sid] } })],
  [
    'user_guid of another user, sub unchanged',
    f => f.make({ claims: { ...f.claims, user_guid: f.otherUserGuid } }),
  ],
  [
    'sub of another user, user_guid unchanged',
    f => f.make({ claims: { ...f.claims, sub: f.otherUserGuid } }),
  ],
];

/** Claims with the signature of their tenant, which only the session contradicts. */
const sessions: Forgery[] = [
  [
    'everything of another tenant except user and session',
    f =>
      f.make({
        header: { ...f.header, kid: f.globex.kid },
        claims: { ...f.claims, tenant_guid: f.globexGuid, tenant_id: f.globexId },
        secret: f.globex.secret,
      }),
  ],
  ['sid of another user', f => f.make({ claims: { ...f.claims, sid: f.sessions.otherUser } })],
  [
    'sid of a user of another tenant',
    f => f.make({ claims: { ...f.claims, sid: f.sessions.otherTenant } }),
  ],
  ['sid of a revoked session', f => f.make({ claims: { ...f.claims, sid: f.sessions.revoked } })],
  [
    'user_guid and sub of another user',
    f => f.make({ claims: { ...f.claims, user_guid: f.otherUserGuid, sub: f.otherUserGuid } }),
  ],
];

const times: Forgery[] = [
  ...[
    '"9999999999"',
    'null',
    '1e400',
    '-1e400',
    '-1',
    '0',
    '1.5e308',
    '[9999999999]',
    '{}',
    'true',
    '99999999999999999999',
  ].map(
    (exp): Forgery => [
      `exp ${exp}`,
      f =>
        f.make({
          claims: JSON.stringify({ ...f.claims, exp: '@' }).replace('"exp":"@"', `"exp":${exp}`),
        }),
    ],
  ),
  ['exp missing', f => f.make({ claims: { ...f.claims, exp: undefined } })],
  ['exp with a fraction', f => f.make({ claims: { ...f.claims, exp: f.now + 300.5 } })],
  ['exp in milliseconds', f => f.make({ claims: { ...f.claims, exp: (f.now + 300) * 1000 } })],
  [
    'a lifetime of 10 years',
    f => f.make({ claims: { ...f.claims, iat: f.now, exp: f.now + 315_360_000 } }),
  ],
  [
    'a lifetime that is a minute too long',
    f =>
      f.make({ claims: { ...f.claims, iat: f.now - 60, exp: f.now + accessTokenLifetimeSeconds } }),
  ],
  ['exp before iat', f => f.make({ claims: { ...f.claims, iat: f.now, exp: f.now - 1 } })],
  [
    'not valid before an hour from now',
    f => f.make({ claims: { ...f.claims, nbf: f.now + 3_600 } }),
  ],
  [
    'issued in the future',
    f => f.make({ claims: { ...f.claims, iat: f.now + 60, exp: f.now + 600 } }),
  ],
  [
    'expired, signed with the wrong key',
    f => f.make({ claims: { ...f.claims, iat: f.now - 2_000, exp: f.now - 1_100 }, secret: 'x' }),
  ],
  [
    'expired, unsigned',
    f =>
      `${encodeSegment(f.header)}.${encodeSegment({ ...f.claims, iat: f.now - 2_000, exp: f.now - 1_100 })}.x`,
  ],
];

function withSignature(
  token: string,
  change: (bytes: Buffer) => void,
  encoding: 'hex' | 'base64url' = 'base64url',
): string {
  const [header, payload, text = ''] = token.split('.');
  const bytes = Buffer.from(text, 'base64url');
  change(bytes);
  return [header, payload, bytes.toString(encoding)].join('.');
}

/** Calls a function with each item, 25 at a time. */
async function mapInBatches<Item, Result>(
  items: Item[],
  call: (item: Item) => Promise<Result>,
): Promise<Result[]> {
  const results: Result[] = [];
  for (let at = 0; at < items.length; at += 25) {
    results.push(...(await Promise.all(items.slice(at, at + 25).map(call))));
  }
  return results;
}

describe('access tokens', () => {
  let world: World;
  let admin: Client;
  let forger: Forger;
  let refusal: Record<string, unknown>;
  let listenerConnections = 0;
  const listener = createServer(socket => {
    listenerConnections++;
    socket.destroy();
  });

  const bearer = (token: string, path = me): Promise<ApiResponse> =>
    world.anonymous.get(path, { Authorization: `Bearer ${token}` });

  before(async () => {
    world = await createWorld();
    admin = await world.login(world.acme);
    await new Promise<void>(resolve => listener.listen(0, '127.0.0.1', resolve));

    const acme = await activeKey(world, world.acme);
    const other = await addSampleUser(world, world.acme);
    const otherUser = await world.login(world.acme, other);
    const revoked = await world.login(world.acme);
    await controlSql(world, 'update sessions set revoked_at = now() where id = ?', [
      claimsOf(revoked.tokens!.accessToken).sid,
    ]);

    const header = { alg: 'HS512', typ: 'at+jwt', kid: acme.kid };
    const token = admin.tokens!.accessToken;
    const claims = claimsOf(token);

    forger = {
      acme,
      globex: await activeKey(world, world.globex),
      token,
      header,
      claims,
      now: Math.floor(Date.now() / 1000),
      make: changes =>
        forgeToken(
          changes.header ?? header,
          changes.claims ?? claims,
          changes.secret ?? acme.secret,
          changes.hash,
        ),
      sessions: {
        otherUser: String(claimsOf(otherUser.tokens!.accessToken).sid),
        otherTenant: String(claimsOf((await world.login(world.globex)).tokens!.accessToken).sid),
        revoked: String(claimsOf(revoked.tokens!.accessToken).sid),
      },
      otherUserGuid: other.guid,
      globexId: world.globex.id,
      globexGuid: world.globex.guid,
      acmeGuid: world.acme.guid,
      listener: `http://127.0.0.1:${(listener.address() as { port: number }).port}/keys`,
    };

    refusal = comparable(await bearer('x'));
  });
  after(async () => {
    listener.close();
    await world.close();
  });

  it('a token that is signed with the active key is accepted, whoever made it', async () => {
    expect((await bearer(forger.token)).status).to.equal(200);
    expect((await bearer(forger.make({}))).status).to.equal(200);
    const resigned = resignToken(forger.token, {}, forger.acme);
    expect(
      (await world.anonymous.get(me, { Authorization: `bearer   ${resigned}` })).status,
    ).to.equal(200);
  });

  it('an invalid token is refused with 401, invalid_token and the challenge, without further details', async () => {
    const { status, headers: sent, body } = await bearer('x');
    expect(status).to.equal(401);
    expect(sent.get('www-authenticate')).to.equal('Bearer error="invalid_token"');
    expect(sent.get('content-type')).to.match(/^application\/problem\+json/);
    expect(sent.get('cache-control')).to.equal('no-store');
    expect(body).to.have.all.keys('type', 'title', 'status', 'code', 'traceId');
    expect(body).to.include({ status: 401, code: 'invalid_token' });
  });

  for (const [group, forgeries] of Object.entries({
    algorithms,
    keys,
    headers,
    shapes,
    payloads,
    claims,
    sessions,
    times,
  })) {
    it(`tokens with forged ${group} all get the same response (${forgeries.length} forgeries)`, async () => {
      const open = world.service.databases.budgets.usage.open;

      for (const [name, forge] of forgeries) {
        // A busy machine may pause this process, so the quickest of three responses counts.
        const times: number[] = [];
        do {
          const startedAt = performance.now();
          const response = await bearer(forge(forger));
          times.push(performance.now() - startedAt);
          expect(comparable(response), name).to.deep.equal(refusal);
        } while (times.length < 3 && Math.min(...times) >= maxRefusalMs);

        expect(Math.min(...times), `${name}: response time in ms`).to.be.below(maxRefusalMs);
      }

      expect(listenerConnections, 'connections to the address in the token').to.equal(0);
      // While the session of a genuine token is looked up, the first connection of its tenant is
      // opened: of acme, and of globex.
      const opened = world.service.databases.budgets.usage.open - open;
      expect(opened, 'tenant databases opened').to.be.within(0, group === 'sessions' ? 2 : 0);
    });
  }

  it('a token with any other last character of the signature is refused', async () => {
    const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
    const variants = [...alphabet]
      .map(last => forger.token.slice(0, -1) + last)
      .filter(token => token !== forger.token);
    expect(variants).to.have.length(63);

    // At least three variants decode to the same bytes, so this shows that the text itself is
    // compared.
    const bytes = (token: string) => Buffer.from(token.split('.')[2]!, 'base64url').toString('hex');
    expect(variants.filter(token => bytes(token) === bytes(forger.token)).length).to.be.at.least(3);

    for (const response of await mapInBatches(variants, token => bearer(token))) {
      expect(comparable(response)).to.deep.equal(refusal);
    }
  });

  it('a token with one changed byte is refused (500 random changes)', async () => {
    const random = new Random(20_261_121);
    const original = Buffer.from(forger.token, 'latin1');
    // All bytes that an HTTP header may contain, except white space.
    const allowed = Array.from({ length: 256 }, (_, byte) => byte).filter(
      byte => byte > 0x20 && byte !== 0x7f,
    );

    const changed = Array.from({ length: 500 }, () => {
      const bytes = Buffer.from(original);
      const at = random.integer(0, bytes.length - 1);
      const others = allowed.filter(byte => byte !== original[at]);
      bytes[at] = others[random.integer(0, others.length - 1)]!;
      return bytes.toString('latin1');
    });

    const responses = await mapInBatches(changed, token => bearer(token));
    responses.forEach((response, i) => {
      expect(comparable(response), JSON.stringify(changed[i])).to.deep.equal(refusal);
    });
  });

  it('tokens of 500 unknown tenants are refused', async () => {
    const tokens = Array.from({ length: 500 }, () =>
      forger.make({ claims: { ...forger.claims, tenant_guid: randomUUID() } }),
    );
    for (const response of await mapInBatches(tokens, token => bearer(token))) {
      expect(comparable(response)).to.deep.equal(refusal);
    }
  });

  it('a token with nbf is accepted from 30 s before that time', async () => {
    const status = async (nbf: number) =>
      (await world.anonymous.withToken(forger.make({ claims: { ...forger.claims, nbf } })).get(me))
        .status;
    const now = Math.floor(Date.now() / 1_000);
    expect(await status(now)).to.equal(200);
    expect(await status(now + clockSkewSeconds)).to.equal(200);
    expect(await status(now + clockSkewSeconds + 60)).to.equal(401);
  });

  describe('expiry', () => {
    const expired = (secondsSinceExpiry: number): string => {
      const exp = Math.floor(Date.now() / 1000) - secondsSinceExpiry;
      return forger.make({
        claims: { ...forger.claims, iat: exp - accessTokenLifetimeSeconds, exp },
      });
    };

    it('an expired token is accepted within the clock skew', async () => {
      // A busy machine may need a second for the request.
      expect((await bearer(expired(clockSkewSeconds - 10))).status).to.equal(200);
    });

    it('a token that expired longer ago than the clock skew is refused with token_expired', async () => {
      for (const age of [clockSkewSeconds + 1, 60, 86_400]) {
        const { status, headers: sent, body } = await bearer(expired(age));
        expect(status).to.equal(401);
        expect(body.code).to.equal('token_expired');
        expect(sent.get('www-authenticate')).to.equal('Bearer error="invalid_token"');
      }
    });

    it('a token expires when its lifetime has passed since it was issued', async () => {
      const { iat, exp } = forger.claims as { iat: number; exp: number };
      expect(exp - iat).to.equal(accessTokenLifetimeSeconds);
      world.clock.offsetSeconds = accessTokenLifetimeSeconds + clockSkewSeconds + 1;
      try {
        expect((await bearer(forger.token)).body.code).to.equal('token_expired');
      } finally {
        world.clock.offsetSeconds = 0;
      }
      expect((await bearer(forger.token)).status).to.equal(200);
    });
  });

  it('a permissions claim that is not a list of exact names grants nothing', async () => {
    const strange = [
      'full.manage',
      { 0: 'full.manage', length: 1 },
      { 'full.manage': true },
      ['FULL.MANAGE'],
      ['full.manage '],
      ['full'],
      ['full.*'],
      ['*'],
      ['xfull.manage'],
      [['full.manage']],
      [{ toString: 'full.manage' }],
      [null, 1, true],
      null,
      undefined,
      [],
      ['full.read'],
    ];

    for (const permissions of strange) {
      const client = world.anonymous.withToken(
        forger.make({ claims: { ...forger.claims, permissions } }),
      );
      const {
        status,
        body,
        headers: sent,
      } = await client.post('/api/v1/EntityStatus', { Title: 'Forged' });
      expect(status, JSON.stringify(permissions)).to.equal(403);
      expect(body.code, JSON.stringify(permissions)).to.equal('forbidden');
      expect(sent.get('www-authenticate')).to.equal(
        'Bearer error="insufficient_scope", scope="full.manage"',
      );
    }

    const genuine = world.anonymous.withToken(
      forger.make({ claims: { ...forger.claims, permissions: ['full.manage'] } }),
    );
    expect((await genuine.post('/api/v1/EntityStatus', { Title: 'Genuine' })).status).to.equal(201);
  });

  it('a request without a Bearer token gets 401 unauthorized and a challenge without an error', async () => {
    for (const authorization of [
      undefined,
      'Bearer',
      'Bearer ',
      'Basic x',
      'Token x',
      'Bearerx y',
      forger.token,
    ]) {
      const response = await world.anonymous.get(me, {
        'X-Tenant': world.acme.guid,
        ...(authorization === undefined ? {} : { Authorization: authorization }),
      });

      expect(response.status, authorization).to.equal(401);
      expect(response.body.code, authorization).to.equal('unauthorized');
      expect(response.headers.get('www-authenticate'), authorization).to.equal('Bearer');
    }
  });

  it('a request with two Authorization headers is refused with 400, in any order and spelling', async () => {
    const forged = forger.make({ secret: 'x' });

    for (const [first, second] of [
      [forger.token, forged],
      [forged, forger.token],
      [forger.token, forger.token],
    ]) {
      for (const name of ['Authorization', 'AUTHORIZATION']) {
        const { status, body } = await withHeaders(world.url, [
          'Authorization',
          `Bearer ${first}`,
          name,
          `Bearer ${second}`,
        ]);
        expect(status).to.equal(400);
        expect(body.code).to.equal('invalid_request');
      }
    }

    const basic = ['Authorization', 'Basic YTpi'];
    const { status } = await withHeaders(
      world.url,
      [...basic, ...basic],
      '/api/Data/GenerateToken',
    );
    expect(status, 'an API client').to.equal(400);
  });

  it('a header that exceeds the size limit is refused with 431', async () => {
    const { status } = await withHeaders(world.url, [
      'Authorization',
      `Bearer ${'x'.repeat(17_000)}`,
    ]);
    expect(status).to.equal(431);
  });

  it('a retiring key verifies tokens, a disabled key does not', async () => {
    const retiring = { kid: randomUUID(), secret: randomBytes(64) };
    const disabled = { kid: randomUUID(), secret: randomBytes(64) };

    await addKey(world, world.acme, retiring, 'retiring');
    await addKey(world, world.acme, disabled, 'disabled');

    await eventually(
      async () => (await bearer(resignToken(forger.token, {}, retiring))).status === 200,
      announcedMs,
    );
    expect(comparable(await bearer(resignToken(forger.token, {}, disabled)))).to.deep.equal(
      refusal,
    );

    await controlSql(world, `update signing_keys set status = 'disabled' where kid = ?`, [
      retiring.kid,
    ]);

    await eventually(
      async () => (await bearer(resignToken(forger.token, {}, retiring))).status === 401,
      announcedMs,
    );
  });

  it('a token of a new key is accepted at once, even right after a token of a key that does not exist', async () => {
    // Sends no process a notification of the key.
    await controlSql(world, 'alter table signing_keys disable trigger user');
    try {
      for (let round = 0; round < 3; round++) {
        const [invented, created] = [0, 1].map(() => ({
          kid: randomUUID(),
          secret: randomBytes(64),
        }));

        expect(comparable(await bearer(resignToken(forger.token, {}, invented!)))).to.deep.equal(
          refusal,
        );

        await addKey(world, world.acme, created!, 'retiring');
        expect((await bearer(resignToken(forger.token, {}, created!))).status).to.equal(200);
      }
    } finally {
      await controlSql(world, 'alter table signing_keys enable trigger user');
    }
  });

  it('a tenant with a key that is too short is not served at all, and the log says so', async () => {
    const globex = (await world.login(world.globex)).tokens!.accessToken;

    for (const size of [0, 1, 63]) {
      const short = { kid: randomUUID(), secret: randomBytes(size) };
      await addKey(world, world.globex, short, 'retiring');
      const logged = world.logs.length;

      const refused = await eventually(async () => {
        const response = await bearer(resignToken(globex, {}, short));
        return response.status !== 401 && response;
      }, announcedMs);
      expect(refused.status, `${size} bytes`).to.equal(503);
      expect(refused.body.code, `${size} bytes`).to.equal('unavailable');

      // An unknown key reloads the tenant at once; the cached tenant is dropped when the
      // notification arrives.
      await eventually(async () => (await bearer(globex)).status === 503, announcedMs);
      expect(
        world.logs.slice(logged).some(line => line.includes('tenant_secrets_unusable')),
      ).to.equal(true);
      expect((await bearer(forger.token)).status, 'the other tenant').to.equal(200);

      await controlSql(world, 'delete from signing_keys where kid = ?', [short.kid]);
      await eventually(async () => (await bearer(globex)).status === 200, announcedMs);
    }
  });

  it('after all forgeries the genuine token is still accepted, and no request got an internal error', async () => {
    expect((await bearer(forger.token)).body.tenantGuid).to.equal(world.acme.guid);
    const failures = world.logs
      .map(line => JSON.parse(line))
      .filter(
        ({ code, status }) =>
          code === 'internal_error' || (status >= 500 && code !== 'unavailable'),
      );
    expect(failures).to.deep.equal([]);
  });
});

/**
 * Sends headers that `fetch` would join or refuse. `rawHeaders` contains names and values in
 * turn.
 */
function withHeaders(
  url: string,
  rawHeaders: string[],
  path = me,
): Promise<{ status: number; body: Record<string, unknown> }> {
  return new Promise((resolve, reject) => {
    const sent = request(
      `${url}${path}`,
      { headers: ['Host', 'backoffice.test', ...rawHeaders] as never, agent: false },
      response => {
        const chunks: Buffer[] = [];
        response.on('data', chunk => chunks.push(chunk));
        response.on('end', () => {
          const text = Buffer.concat(chunks).toString();
          resolve({ status: response.statusCode ?? 0, body: text ? JSON.parse(text) : {} });
        });
      },
    );
    sent.on('error', reject);
    sent.end();
  });
}
