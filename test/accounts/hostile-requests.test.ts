import { gzipSync } from 'node:zlib';
import { expect } from 'chai';
import type { ApiResponse, Client } from '../support/client.ts';
import { document, type Operation } from '../support/contract.ts';
import { oddValues } from '../support/odd-values.ts';
import { useWorld } from '../support/world.ts';
import { addSampleUser } from './auth/sample-users.ts';
import { addRole } from './people/people-world.ts';
import { storeProgram } from './programs/stored-programs.ts';

/** The paths of logins, of one's own account, and of what decides who may log in. */
const paths = [
  /^\/api\/v1\/auth\//,
  /^\/api\/v1\/IdentityProviders/,
  /^\/api\/v1\/Programs/,
  /^\/api\/v1\/Roles\/\{id\}\/second-factor$/,
  /^\/api\/v1\/Users\/\{id\}\/factors\/reset$/,
];

interface Endpoint {
  readonly method: string;
  readonly path: string;
  readonly operation: Operation;
  readonly isAnonymous: boolean;
  /** A valid body; undefined: the endpoint takes none. */
  readonly example: Record<string, unknown> | undefined;
}

const endpoints: Endpoint[] = Object.entries(document.paths)
  .filter(([path]) => paths.some(pattern => pattern.test(path)))
  .flatMap(([path, operations]) =>
    Object.entries(operations)
      .filter(([method]) => /^(get|post|put|patch|delete)$/.test(method))
      .map(([method, operation]) => ({
        method: method.toUpperCase(),
        path,
        operation,
        isAnonymous: operation.security !== undefined,
        example: operation.requestBody?.content['application/json']?.example as
          | Record<string, unknown>
          | undefined,
      })),
  );
const withBody = endpoints.filter(({ example }) => example !== undefined);

/** Values that a client sends by mistake, or to see what happens. */
const values: readonly unknown[] = [
  ...oddValues,
  '7',
  '..',
  'x'.repeat(6_000),
  'a.b.c',
  ['\ud800'],
  { toString: 1, valueOf: null, length: -1 },
];

/** Yields a body with an odd value in each of its places in turn, and without each member. */
function* variants(value: unknown): Generator<unknown> {
  if (typeof value !== 'object' || value === null) return;

  for (const name of Object.keys(value)) {
    const { [name]: member, ...others } = value as Record<string, unknown>;
    yield Array.isArray(value) ? [] : others;
    for (const odd of values) yield replaced(value, name, odd);
    for (const inside of variants(member)) yield replaced(value, name, inside);
  }
}

function replaced(value: object, name: string, member: unknown): unknown {
  if (Array.isArray(value)) return value.map((each, at) => (String(at) === name ? member : each));
  return { ...value, [name]: member };
}

/** Returns the methods of all endpoints that a path names. */
function methodsOf(path: string): string[] {
  return Object.entries(document.paths)
    .filter(([template]) => new RegExp(`^${template.replace(/\{\w+\}/g, '[^/]+')}$`).test(path))
    .flatMap(([, operations]) => Object.keys(operations).map(method => method.toUpperCase()));
}

function expectProblem(
  response: ApiResponse,
  message: string,
  statuses: readonly number[] = [400, 401, 403, 404, 409, 412, 413, 415],
): void {
  expect(statuses, `${message}: ${JSON.stringify(response.body)}`).to.include(response.status);
  expect(response.headers.get('content-type'), message).to.match(/^application\/problem\+json\b/);
  expect(response.body.code, message).to.be.a('string');
}

describe('hostile requests to the endpoints of logins, programs and providers', () => {
  const world = useWorld();
  let named: Record<string, string>;
  /** An administrator, whose password and second factor a request may change. */
  let admin: Client;
  /** The ids in paths: of records that a request may change. */
  const ids: Record<string, string> = {};

  before(async () => {
    named = { 'X-Tenant': world.acme.guid };
    const manager = await world.login(world.acme);
    ids.Roles = String((await addRole(manager, ['full.read'])).Id);
    ids.Users = String((await addSampleUser(world, world.acme)).id);
    ids.Programs = String((await storeProgram(world, world.acme)).id);
  });
  beforeEach(async () => {
    const person = await addSampleUser(world, world.acme, { role: 'Administrator' });
    admin = await world.login(world.acme, person);
  });
  afterEach('nothing was logged as an error, and the service responds', async () => {
    expect(world.logs.filter(line => JSON.parse(line).level >= 50)).to.deep.equal([]);
    expect((await world.anonymous.get('/api/v1/auth/providers', named)).status).to.equal(200);
  });

  const pathOf = ({ path }: Endpoint): string =>
    path
      .replace('{keyId}', '0b6b5b0e-5f0a-4d6e-9a53-7d2f6a3d9c11')
      .replace(/([A-Z]\w+)\/\{id\}/, (_, name: string) => `${name}/${ids[name] ?? 1}`)
      .replace(/\{\w+\}/g, '1');
  const sendTo = (
    path: string,
    { method, isAnonymous }: Pick<Endpoint, 'method' | 'isAnonymous'>,
    body?: unknown,
    headers: Record<string, string> = {},
  ): Promise<ApiResponse> =>
    isAnonymous
      ? world.anonymous.send(method, path, body, { ...named, ...headers })
      : admin.send(method, path, body, headers);
  const send = (endpoint: Endpoint, body?: unknown, headers?: Record<string, string>) =>
    sendTo(pathOf(endpoint), endpoint, body, headers);
  const nameOf = ({ method, path }: Endpoint, more: unknown): string =>
    `${method} ${path} ${JSON.stringify(more)?.slice(0, 200)}`;

  it('there are endpoints of each kind', () => {
    expect(endpoints.length).to.be.above(40);
    expect(withBody.length).to.be.above(20);
  });

  for (const endpoint of withBody) {
    const { method, path, example } = endpoint;

    it(`${method} ${path} refuses a body that is none, or of another type`, async () => {
      const json = JSON.stringify(example);
      const others: [string | Uint8Array, Record<string, string>, number[]][] = [
        ...['null', '[]', '"a"', '1', '{', '{"a":1', ' ', '{"__proto__":1}'].map(
          (body): [string, Record<string, string>, number[]] => [body, {}, [400]],
        ),
        [`{"a":${'['.repeat(200)}${']'.repeat(200)}}`, {}, [400]],
        [Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d]), {}, [400]],
        [json, { 'Content-Type': 'text/plain' }, [415]],
        [json, { 'Content-Type': 'application/x-www-form-urlencoded' }, [415]],
        [json, { 'Content-Type': 'multipart/form-data; boundary=a' }, [415]],
        [json, { 'Content-Type': 'application/json; charset=utf-16' }, [415]],
        [json, { 'Content-Type': 'application/json, text/plain' }, [415]],
        [json, { 'Content-Type': '' }, [415]],
        [json, { 'Content-Encoding': 'br' }, [415]],
        [gzipSync(json), { 'Content-Encoding': 'gzip' }, [415]],
        [json.padEnd(2 * 1_024 * 1_024), {}, [413]],
      ];

      for (const [body, headers, statuses] of others) {
        const response = await send(endpoint, body, headers);
        expectProblem(response, nameOf(endpoint, [String(body).slice(0, 40), headers]), statuses);
      }
    });

    it(`${method} ${path} takes or refuses each odd value in each of its fields`, async () => {
      for (const body of variants(example)) {
        const response = await send(endpoint, body);
        if (response.status >= 300) expectProblem(response, nameOf(endpoint, body));
      }
    });

    it(`${method} ${path} refuses a field that it does not know if its client asks for that`, async () => {
      const body = { ...example, surprise: 1 };
      const response = await send(endpoint, body, { Prefer: 'handling=strict' });
      expectProblem(response, nameOf(endpoint, body), [400]);
      expect(response.body.errors).to.have.property('surprise');
    });
  }

  it('another method is 405 with those that there are, and another spelling of a path is not found', async () => {
    for (const endpoint of endpoints) {
      const path = pathOf(endpoint);
      const methods = methodsOf(path);
      const others = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'].filter(
        method => !methods.includes(method),
      );
      const { status } = await fetch(`${world.url}${path}`, {
        method: 'HEAD',
        headers: endpoint.isAnonymous
          ? named
          : { Authorization: `Bearer ${admin.tokens?.accessToken}` },
      });
      expect(status === 405, `HEAD ${path} ${status}`).to.equal(!methods.includes('GET'));

      for (const method of others) {
        const response = await sendTo(path, { ...endpoint, method });
        expect(response.status, `${method} ${path}`).to.equal(405);
        expect(response.headers.get('allow'), `${method} ${path}`).to.include(endpoint.method);
      }
      for (const other of [
        path.toUpperCase(),
        path.replace('/api/', '/API/'),
        `${path}/`,
        path.replace('/v1/', '/v1//'),
        `${path}%00`,
        `${path}%ff`,
        `${path};a=b`,
        `${path}%2f`,
      ]) {
        const response = await sendTo(other, endpoint, endpoint.example);
        // To end a session that there is not succeeds.
        if (endpoint.path === '/api/v1/auth/sessions/{id}' && response.status === 204) continue;
        // `totp%00` is an id of a factor, which other methods take.
        expectProblem(response, `${endpoint.method} ${other}`, [400, 401, 403, 404, 405]);
      }
    }
  });

  it('the endpoints that take a form refuse every odd one in the form of their standard, or as a problem', async () => {
    const form = { 'Content-Type': 'application/x-www-form-urlencoded' };
    const basic = (text: string) => ({
      Authorization: `Basic ${Buffer.from(text).toString('base64')}`,
    });
    const grant = 'grant_type=client_credentials';
    const refused: [string | undefined, Record<string, string>, number[]][] = [
      [undefined, {}, [415]],
      ['', form, [400, 401]],
      [grant, {}, [415]],
      ['{}', { 'Content-Type': 'application/json' }, [415]],
      [grant, { 'Content-Type': 'multipart/form-data; boundary=a' }, [415]],
      [grant, { ...form, 'Content-Encoding': 'gzip' }, [415]],
      [`${grant}&a=${'b'.repeat(9_000)}`, form, [413]],
      [`${grant}&a=\0`, form, [400]],
      ['%', form, [400, 401]],
      ['=&=&&', form, [400, 401]],
      [grant, form, [400, 401]],
      [`${grant}&${grant}`, form, [400]],
      ['logout_token=a&logout_token=b', form, [400, 401]],
      ['logout_token=%00', form, [400, 401]],
      ['logout_token=a.b.c', form, [400, 401]],
      [`${grant}&client_id=%00&client_secret=%00`, form, [400, 401]],
      [`${grant}&client_id=%ED%A0%80&client_secret=sbk_`, form, [400, 401]],
      [`${grant}&client_id=a&client_secret=b`, { ...form, ...basic('a:b') }, [400]],
      [grant, { ...form, ...basic('') }, [400, 401]],
      [grant, { ...form, ...basic(':') }, [400, 401]],
      [grant, { ...form, ...basic('%:%') }, [400, 401]],
      [grant, { ...form, Authorization: 'Basic !' }, [400, 401]],
      [grant, { ...form, Authorization: 'Bearer a' }, [400, 401]],
      ['grant_type=password&username=a&password=b', { ...form, ...basic('a:b') }, [400]],
    ];

    for (const path of [
      '/api/v1/auth/token',
      '/api/v1/auth/logout/0b6b5b0e-5f0a-4d6e-9a53-7d2f6a3d9c11',
    ]) {
      for (const [body = null, headers, statuses] of refused) {
        const sent = body === null ? null : Buffer.from(body);
        const response = await fetch(`${world.url}${path}`, {
          method: 'POST',
          body: sent,
          headers,
        });
        const message = `${path} ${body?.slice(0, 60)} ${JSON.stringify(headers)} ${response.status}`;
        const answer: unknown = await response.json();
        expect(response.status, message).to.be.oneOf(statuses);
        expect(answer, message).to.have.any.keys('error', 'code');
      }
      for (const method of ['GET', 'HEAD', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']) {
        const response = await fetch(`${world.url}${path}`, { method });
        expect(response.status, `${method} ${path}`).to.equal(405);
        expect(response.headers.get('allow'), `${method} ${path}`).to.equal('POST');
      }
    }
  });

  it('another X-Tenant of an anonymous endpoint is 403, and a token that is none is 401', async () => {
    const tokens = [
      'Bearer',
      'Bearer ',
      'Bearer a.b.c',
      `Bearer ${'a'.repeat(5_000)}`,
      'Bearer sbk_',
      `Bearer sbk_${'a'.repeat(40)}`,
      `Bearer sbc_${'a'.repeat(40)}`,
      `Bearer ${'e30'}.${'e30'}.a`,
      'Bearer e30.eyJ0ZW5hbnRfZ3VpZCI6WyJhIl19.a',
      'Bearer e30.eyJ0ZW5hbnRfZ3VpZCI6Ilx1MDAwMCJ9.a',
      'Basic YTpi',
      'bearer\t a',
      'Digest a',
    ];
    const tenants = [
      '',
      'nobody',
      'a'.repeat(5_000),
      `${world.acme.guid}, ${world.acme.guid}`,
      "'",
    ];

    for (const { method, path, isAnonymous, example } of endpoints) {
      const own = pathOf({ method, path } as Endpoint);

      for (const tenant of isAnonymous ? tenants : []) {
        const response = await world.anonymous.send(method, own, example, { 'X-Tenant': tenant });
        expectProblem(response, `${method} ${own} ${tenant}`, [403]);
      }

      for (const Authorization of isAnonymous ? [] : tokens) {
        const headers = { ...named, Authorization };
        const response = await world.anonymous.send(method, own, example, headers);
        expectProblem(response, `${method} ${own} ${Authorization}`, [401]);
      }
    }
  });
});
