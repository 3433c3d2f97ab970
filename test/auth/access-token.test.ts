import { randomBytes, randomUUID } from 'node:crypto';
import { request } from 'node:http';
import { createServer } from 'node:net';
import { expect } from 'chai';
import jwt from 'jsonwebtoken';
import { accessTokenLifetimeSeconds, clockSkewSeconds } from '../../src/control/token-lifetime.ts';
import type { ApiResponse, Client } from '../support/client.ts';
import { eventually } from '../support/eventually.ts';
import { createWorld, type World } from '../support/world.ts';
import { activeKey, addKey, claimsOf, encodeSegment, forgeToken, resignToken, type TenantKey } from './forge.ts';
import { comparable } from './responses.ts';
import { addSampleUser, controlSql } from './sample-users.ts';

const me = '/api/v1/auth/me';

/** What the forger of the table below has at hand: far more than any real one. */
interface Forger {
  acme: TenantKey;
  globex: TenantKey;
  /** A token that is accepted. */
  token: string;
  /** What a good token of today holds. */
  header: Record<string, unknown>;
  claims: Record<string, unknown>;
  now: number;
  /** A good token, but for these changes; signed with acme's key unless told otherwise. */
  make(changes: Changes): string;
  sessions: { otherUser: string; otherTenant: string; revoked: string };
  otherUserGuid: string;
  globexId: number;
  globexGuid: string;
  acmeGuid: string;
  /** A URL on this machine that counts who calls. */
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
    [`alg ${alg}, no signature`, f => `${encodeSegment({ ...f.header, alg })}.${encodeSegment(f.claims)}.`],
    [
      `alg ${alg}, some signature`,
      f => `${encodeSegment({ ...f.header, alg })}.${encodeSegment(f.claims)}.${f.token.split('.')[2]}`,
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
      [`${name}, signed with the empty key`, f => f.make({ header: { ...f.header, kid }, secret: '' })],
      [`${name}, signed with "1"`, f => f.make({ header: { ...f.header, kid }, secret: '1' })],
      [`${name}, signed with the right key`, f => f.make({ header: { ...f.header, kid } })],
    ];
  }),
  ['kid in an array, the right one', f => f.make({ header: { ...f.header, kid: [f.acme.kid] } })],
  [
    "another tenant's kid and key",
    f => f.make({ header: { ...f.header, kid: f.globex.kid }, secret: f.globex.secret }),
  ],
  ["another tenant's key under our kid", f => f.make({ secret: f.globex.secret })],
  ["our key, another tenant's kid", f => f.make({ header: { ...f.header, kid: f.globex.kid } })],
  ...['', '1', 'secret', 'changeme', 'password', 'your-256-bit-secret', 'acme', 'acme Ltd', 'sales-back-office'].map(
    (secret): Forgery => [`signed with "${secret}"`, f => f.make({ secret })],
  ),
  ["signed with the tenant's guid", f => f.make({ secret: f.acmeGuid })],
  ['signed with the kid', f => f.make({ secret: f.acme.kid })],
  ['signed with 64 zero bytes', f => f.make({ secret: Buffer.alloc(64) })],
  // At the front: a key that ends with a zero is the same without it (RFC 2104 §2).
  ['signed with the right key, cut by a byte', f => f.make({ secret: f.acme.secret.subarray(1) })],
  ['signed with the right key in base64', f => f.make({ secret: f.acme.secret.toString('base64') })],
];

const headers: Forgery[] = [
  ...(
    [
      ['jku', (f: Forger) => f.listener],
      ['x5u', (f: Forger) => f.listener],
      ['jwk', (f: Forger) => ({ kty: 'oct', k: f.acme.secret.toString('base64url'), alg: 'HS512' })],
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
  ['a signature that lacks its last 4 characters', f => f.token.slice(0, -4)],
  ['a signature with one bit flipped', f => withSignature(f.token, bytes => (bytes[10] = bytes[10]! ^ 1))],
  ['a signature in the alphabet of plain base64, padded', f => `${f.token}==`],
  ['a signature in hexadecimal', f => withSignature(f.token, () => {}, 'hex')],
  [
    "another token's signature",
    f => [...f.token.split('.').slice(0, 2), f.make({ claims: { ...f.claims, jti: 'x' } }).split('.')[2]].join('.'),
  ],
  [
    'a payload of its own over the right signature',
    f => f.token.replace(/\.[^.]+\./, `.${encodeSegment({ ...f.claims, permissions: ['full.manage'] })}.`),
  ],
  ['1 segment', f => f.token.split('.')[0]!],
  ['2 segments', f => f.token.split('.').slice(1).join('.')],
  ['4 segments', f => `${f.token}.${f.token.split('.')[2]}`],
  ['4 segments, the first empty', f => `.${f.token}`],
  ['5 segments', f => `${encodeSegment({ alg: 'dir', enc: 'A256GCM', kid: f.acme.kid })}..AAAA.AAAA.AAAA`],
  ['dots', () => '..'],
  ['a dot', () => '.'],
  ['more dots', () => '....'],
  ['no token at all, but words', () => 'not-a-token'],
  ['two tokens', f => `${f.token} ${f.token}`],
  ['two tokens with a comma', f => `${f.token},${f.token}`],
  ['the token in quotes', f => `"${f.token}"`],
  ['a character that is not ASCII at the end', f => `${f.token}\u00a0`],
  ['a line break in base64', f => `${f.token.slice(0, 10)}%0a${f.token.slice(10)}`],
  ['more than 4 KB, well signed', f => f.make({ claims: { ...f.claims, padding: 'x'.repeat(4_000) } })],
  ['12 KB, well signed', f => f.make({ claims: { ...f.claims, padding: 'x'.repeat(9_000) } })],
];

const payloads: Forgery[] = [
  ...['null', '42', '[]', '"s"', 'true', '', 'not json', '{', '[{}]'].flatMap((payload): Forgery[] => [
    [`payload ${payload || 'empty'}, not signed`, f => `${encodeSegment(f.header)}.${encodeSegment(payload)}.x`],
    [`payload ${payload || 'empty'}, well signed`, f => f.make({ claims: payload })],
  ]),
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
      ['of nobody', () => randomUUID()],
      ['the nil UUID', () => '00000000-0000-0000-0000-000000000000'],
      ['nested deeply', () => JSON.parse(`${'['.repeat(1_000)}${']'.repeat(1_000)}`)],
      ['of another tenant, with our key and kid', f => f.globexGuid],
    ] as [string, (f: Forger) => unknown][]
  ).map(
    ([name, guid]): Forgery => [`tenant_guid ${name}`, f => f.make({ claims: { ...f.claims, tenant_guid: guid(f) } })],
  ),
  ...(
    [
      ['of another tenant', f => f.globexId],
      ['as a string', f => String(f.claims.tenant_id)],
      ['missing', () => undefined],
      ['null', () => null],
    ] as [string, (f: Forger) => unknown][]
  ).map(([name, id]): Forgery => [`tenant_id ${name}`, f => f.make({ claims: { ...f.claims, tenant_id: id(f) } })]),
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
    'tenant_guid of another tenant, our key under its kid',
    f => f.make({ header: { ...f.header, kid: f.globex.kid }, claims: { ...f.claims, tenant_guid: f.globexGuid } }),
  ],
  [
    'tenant_guid of another tenant, its key under our kid',
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
    'everything of another tenant but user and session',
    f =>
      f.make({
        header: { ...f.header, kid: f.globex.kid },
        claims: { ...f.claims, tenant_guid: f.globexGuid, tenant_id: f.globexId },
        secret: f.globex.secret,
      }),
  ],
  ['sid in upper case', f => f.make({ claims: { ...f.claims, sid: String(f.claims.sid).toUpperCase() } })],
  ['sid in an array', f => f.make({ claims: { ...f.claims, sid: [f.claims.sid] } })],
  ['sid of another user', f => f.make({ claims: { ...f.claims, sid: f.sessions.otherUser } })],
  ['sid of a user of another tenant', f => f.make({ claims: { ...f.claims, sid: f.sessions.otherTenant } })],
  ['sid of a session that was revoked', f => f.make({ claims: { ...f.claims, sid: f.sessions.revoked } })],
  [
    'user_guid and sub of another user',
    f => f.make({ claims: { ...f.claims, user_guid: f.otherUserGuid, sub: f.otherUserGuid } }),
  ],
  ['user_guid of another user, sub our own', f => f.make({ claims: { ...f.claims, user_guid: f.otherUserGuid } })],
  ['sub of another user, user_guid our own', f => f.make({ claims: { ...f.claims, sub: f.otherUserGuid } })],
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
      f => f.make({ claims: JSON.stringify({ ...f.claims, exp: '@' }).replace('"exp":"@"', `"exp":${exp}`) }),
    ],
  ),
  ['exp missing', f => f.make({ claims: { ...f.claims, exp: undefined } })],
  ['exp with a fraction', f => f.make({ claims: { ...f.claims, exp: f.now + 300.5 } })],
  ['exp in milliseconds', f => f.make({ claims: { ...f.claims, exp: (f.now + 300) * 1000 } })],
  ['a life of 10 years', f => f.make({ claims: { ...f.claims, iat: f.now, exp: f.now + 315_360_000 } })],
  [
    'a lifetime that is a minute too long',
    f => f.make({ claims: { ...f.claims, iat: f.now - 60, exp: f.now + accessTokenLifetimeSeconds } }),
  ],
  ['exp before iat', f => f.make({ claims: { ...f.claims, iat: f.now, exp: f.now - 1 } })],
  ['issued in the future', f => f.make({ claims: { ...f.claims, iat: f.now + 60, exp: f.now + 600 } })],
  [
    'expired, signed with the wrong key',
    f => f.make({ claims: { ...f.claims, iat: f.now - 2_000, exp: f.now - 1_100 }, secret: 'x' }),
  ],
  [
    'expired, not signed',
    f => `${encodeSegment(f.header)}.${encodeSegment({ ...f.claims, iat: f.now - 2_000, exp: f.now - 1_100 })}.x`,
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

/** Small, seeded, and the same everywhere: mulberry32. */
function seeded(seed: number): (below: number) => number {
  let state = seed;
  return below => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) % below;
  };
}

/** Calls for each item, 25 at a time. */
async function each<Item, Result>(items: Item[], call: (item: Item) => Promise<Result>): Promise<Result[]> {
  const results: Result[] = [];
  for (let at = 0; at < items.length; at += 25)
    results.push(...(await Promise.all(items.slice(at, at + 25).map(call))));
  return results;
}

describe('Access tokens', () => {
  let world: World;
  let admin: Client;
  let forger: Forger;
  let refusal: Record<string, unknown>;
  const listener = createServer(socket => {
    calls++;
    socket.destroy();
  });
  let calls = 0;

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
        forgeToken(changes.header ?? header, changes.claims ?? claims, changes.secret ?? acme.secret, changes.hash),
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

  it('are accepted when they are ours, also when made by hand', async () => {
    expect((await bearer(forger.token)).status).to.equal(200);
    expect((await bearer(forger.make({}))).status).to.equal(200);
    const resignedByUs = resignToken(forger.token, {}, forger.acme);
    expect((await world.anonymous.get(me, { Authorization: `bearer   ${resignedByUs}` })).status).to.equal(200);
  });

  it('that are refused are refused with 401, invalid_token and the challenge, and nothing else', async () => {
    const { status, headers: sent, body } = await bearer('x');
    expect(status).to.equal(401);
    expect(sent.get('www-authenticate')).to.equal('Bearer error="invalid_token"');
    expect(sent.get('content-type')).to.match(/^application\/problem\+json/);
    expect(sent.get('cache-control')).to.equal('no-store');
    expect(body).to.have.all.keys('type', 'title', 'status', 'code', 'traceId');
    expect(body).to.include({ status: 401, code: 'invalid_token' });
  });

  for (const [group, forgeries] of Object.entries({ algorithms, keys, headers, shapes, payloads, claims, times })) {
    it(`with forged ${group} are refused, all with the same answer (${forgeries.length} forgeries)`, async () => {
      const open = world.service.databases.usage.open;
      for (const [name, forge] of forgeries) {
        const startedAt = performance.now();
        const answer = await bearer(forge(forger));
        const ms = performance.now() - startedAt;
        expect(comparable(answer), name).to.deep.equal(refusal);
        expect(ms, `${name}: milliseconds`).to.be.below(500);
      }
      expect(calls, 'connections to the address in the token').to.equal(0);
      expect(world.service.databases.usage.open, 'tenant databases opened').to.equal(open);
    });
  }

  it('are refused with every other last character of the signature', async () => {
    const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
    const variants = [...alphabet]
      .map(last => forger.token.slice(0, -1) + last)
      .filter(token => token !== forger.token);
    expect(variants).to.have.length(63);
    // At least three of them stand for the same bytes: it is the text that must be the same.
    const bytes = (token: string) => Buffer.from(token.split('.')[2]!, 'base64url').toString('hex');
    expect(variants.filter(token => bytes(token) === bytes(forger.token)).length).to.be.at.least(3);
    for (const answer of await each(variants, token => bearer(token)))
      expect(comparable(answer)).to.deep.equal(refusal);
  });

  it('are refused with any one byte changed, 2,000 times', async () => {
    const random = seeded(20_261_121);
    const original = Buffer.from(forger.token, 'latin1');
    // Every byte that may stand in a header and is not white space to HTTP.
    const allowed = Array.from({ length: 256 }, (_, byte) => byte).filter(byte => byte > 0x20 && byte !== 0x7f);
    const flipped = Array.from({ length: 2_000 }, () => {
      const bytes = Buffer.from(original);
      const at = random(bytes.length);
      const others = allowed.filter(byte => byte !== original[at]);
      bytes[at] = others[random(others.length)]!;
      return bytes.toString('latin1');
    });
    const answers = await each(flipped, token => bearer(token));
    answers.forEach((answer, i) => {
      expect(comparable(answer), JSON.stringify(flipped[i])).to.deep.equal(refusal);
    });
  });

  it('of 2,000 tenants that do not exist are refused', async () => {
    const tokens = Array.from({ length: 2_000 }, () =>
      forger.make({ claims: { ...forger.claims, tenant_guid: randomUUID() } }),
    );
    for (const answer of await each(tokens, token => bearer(token))) expect(comparable(answer)).to.deep.equal(refusal);
  });

  describe('that expire', () => {
    const aged = (secondsSinceExpiry: number): string => {
      const exp = Math.floor(Date.now() / 1000) - secondsSinceExpiry;
      return forger.make({ claims: { ...forger.claims, iat: exp - accessTokenLifetimeSeconds, exp } });
    };

    it('are accepted for 30 seconds more, because clocks differ', async () => {
      expect((await bearer(aged(clockSkewSeconds - 1))).status).to.equal(200);
    });

    it('are refused after that as token_expired, because the signature is proved', async () => {
      for (const age of [clockSkewSeconds + 1, 60, 86_400]) {
        const { status, headers: sent, body } = await bearer(aged(age));
        expect([status, body.code]).to.deep.equal([401, 'token_expired']);
        expect(sent.get('www-authenticate')).to.equal('Bearer error="invalid_token"');
      }
    });

    it('do so 15 minutes after they were issued', async () => {
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

  it('give no permission by a claim that is not exactly a list of exact names', async () => {
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
      const client = world.anonymous.withToken(forger.make({ claims: { ...forger.claims, permissions } }));
      const { status, body, headers: sent } = await client.post('/api/v1/EntityStatus', { Title: 'Forged' });
      expect([status, body.code], JSON.stringify(permissions)).to.deep.equal([403, 'forbidden']);
      expect(sent.get('www-authenticate')).to.equal('Bearer error="insufficient_scope", scope="full.manage"');
    }
    const honest = world.anonymous.withToken(
      forger.make({ claims: { ...forger.claims, permissions: ['full.manage'] } }),
    );
    expect((await honest.post('/api/v1/EntityStatus', { Title: 'Honest' })).status).to.equal(201);
  });

  it('that are missing, or another scheme, are asked for without calling anything an error', async () => {
    for (const authorization of [undefined, 'Bearer', 'Bearer ', 'Basic x', 'Token x', 'Bearerx y', forger.token]) {
      const answer = await world.anonymous.get(me, {
        'X-Tenant': world.acme.guid,
        ...(authorization === undefined ? {} : { Authorization: authorization }),
      });
      expect([answer.status, answer.body.code], authorization).to.deep.equal([401, 'unauthorized']);
      expect(answer.headers.get('www-authenticate'), authorization).to.equal('Bearer');
    }
  });

  it('cannot be given twice, in any order', async () => {
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
        expect([status, body.code]).to.deep.equal([400, 'invalid_request']);
      }
    }
  });

  it('beyond what a header may hold are refused before they are read', async () => {
    const { status } = await withHeaders(world.url, ['Authorization', `Bearer ${'x'.repeat(17_000)}`]);
    expect(status).to.equal(431);
  });

  it('are verified with a retiring key too, but never with a disabled one', async () => {
    const retiring = { kid: randomUUID(), secret: randomBytes(64) };
    const disabled = { kid: randomUUID(), secret: randomBytes(64) };
    await addKey(world, world.acme, retiring, 'retiring');
    await addKey(world, world.acme, disabled, 'disabled');
    await eventually(async () => (await bearer(resignToken(forger.token, {}, retiring))).status === 200, 1_000);
    expect(comparable(await bearer(resignToken(forger.token, {}, disabled)))).to.deep.equal(refusal);
    await controlSql(world, `update signing_keys set status = 'disabled' where kid = ?`, [retiring.kid]);
    await eventually(async () => (await bearer(resignToken(forger.token, {}, retiring))).status === 401, 1_000);
  });

  it('are never verified with a key that is too short: the whole tenant is refused, and its operator told', async () => {
    const globex = (await world.login(world.globex)).tokens!.accessToken;
    for (const size of [0, 1, 63]) {
      const short = { kid: randomUUID(), secret: randomBytes(size) };
      await addKey(world, world.globex, short, 'retiring');
      const told = world.logs.length;
      const refused = await eventually(async () => {
        const answer = await bearer(resignToken(globex, {}, short));
        return answer.status !== 401 && answer;
      }, 1_000);
      expect([refused.status, refused.body.code], `${size} bytes`).to.deep.equal([503, 'unavailable']);
      expect((await bearer(globex)).status).to.equal(503);
      expect(world.logs.slice(told).some(line => line.includes('tenant_secrets_unusable'))).to.equal(true);
      expect((await bearer(forger.token)).status, 'the other tenant').to.equal(200);
      await controlSql(world, 'delete from signing_keys where kid = ?', [short.kid]);
      await eventually(async () => (await bearer(globex)).status === 200, 1_000);
    }
  });

  it('leave nothing behind when they are forged: the good one still works, and nothing failed inside', async () => {
    expect((await bearer(forger.token)).body.tenantGuid).to.equal(world.acme.guid);
    const failures = world.logs
      .map(line => JSON.parse(line))
      .filter(({ code, status }) => code === 'internal_error' || (status >= 500 && code !== 'unavailable'));
    expect(failures).to.deep.equal([]);
  });
});

/** Sends headers that `fetch` would join or refuse: names and values in turn. */
function withHeaders(url: string, names: string[]): Promise<{ status: number; body: Record<string, unknown> }> {
  return new Promise((resolve, reject) => {
    const sent = request(
      `${url}${me}`,
      { headers: ['Host', 'backoffice.test', ...names] as never, agent: false },
      answer => {
        const chunks: Buffer[] = [];
        answer.on('data', chunk => chunks.push(chunk));
        answer.on('end', () => {
          const text = Buffer.concat(chunks).toString();
          resolve({ status: answer.statusCode ?? 0, body: text ? JSON.parse(text) : {} });
        });
      },
    );
    sent.on('error', reject);
    sent.end();
  });
}
