import { inspect } from 'node:util';
import { isJson } from './media-types.ts';
import type { Endpoint, EndpointGroup, Parameter } from './reference.ts';

/** The values that the examples of an endpoint send as its parameters. */
export interface SampleValues {
  /** The address of the service. */
  readonly base: string;
  /** The values of path parameters, by their names. */
  readonly path: Readonly<Record<string, string | number>>;
  /**
   * The id of a record that DELETE and undelete use: nothing refers to it in the demo tenant.
   */
  readonly deletedId: number;
}

const uuid = '3f0f8c9e-6c1d-4c53-9d2a-0c7b1f6a5e21';

/**
 * The ids for the examples, by resource, where they differ from the default: the examples read
 * record 1, and delete record 2.
 */
const ids: Record<string, { id?: number; deletedId?: number }> = {
  User: { id: 3 }, // the administrator and the user of the sample of `register` come first
  Role: { id: 3, deletedId: 3 },
  Program: { id: 4, deletedId: 4 }, // it has a number of the users
  IdentityProvider: { deletedId: 1 },
  EntityStatus: { deletedId: 3 },
  Entity: { deletedId: 4 },
  Webhook: { deletedId: 1 },
};

/**
 * Returns values for the parameters of a group: records of the demo tenant, and the user and
 * the role that the samples of POST create when they are the first ones.
 */
export function sampleValues({ name, endpoints }: EndpointGroup, base: string): SampleValues {
  const stored =
    endpoints.find(({ method, body }) => method === 'PUT' && body?.example)?.body?.example ?? {};
  const { CountryCode, Code, PromoCode = 'SPRING10' } = stored as Record<string, string>;
  const { id = 1, deletedId = 2 } = ids[name] ?? {};
  // A record with a code of its own may also name the country that it is in.
  const code = Code ?? CountryCode ?? 'GB';
  const path = { id, entityId: 1, code, promoCode: PromoCode };
  return { base: base.replace(/\/$/, ''), path, deletedId };
}

/** A command line for `curl`, in the syntax of POSIX shells. */
export function curlSample(endpoint: Endpoint, values: SampleValues): string {
  const { base } = values;
  const { method, body } = endpoint;
  const address = endpoint.path.replace(/\{(\w+)\}/g, (_, name) =>
    encodeURIComponent(String(pathValue(endpoint, name, values))),
  );
  const query = requiredQuery(endpoint).map(
    ([name, value]) => `${name}=${encodeURIComponent(value)}`,
  );
  const options = [
    method === 'GET' || (method === 'POST' && body) ? '' : `-X ${method}`,
    ...credentials(endpoint),
    body ? `-H 'Content-Type: ${body.mediaType}'` : '',
    ...(body ? [sentBody(body)] : []),
  ].filter(Boolean);

  return [
    `curl '${base}${address}${query.length > 0 ? `?${query.join('&')}` : ''}'`,
    ...options,
  ].join(' \\\n  ');
}

function credentials({ security, parameters }: Endpoint): string[] {
  const schemes = security.flatMap(each => Object.keys(each));
  if (schemes.includes('basic')) return ['-u "$CLIENT_ID:$CLIENT_SECRET"'];
  const namesTenant = parameters.some(({ name, required }) => name === 'X-Tenant' && required);
  return [namesTenant ? '-H "X-Tenant: $TENANT"' : '-H "Authorization: Bearer $TOKEN"'];
}

function sentBody({ mediaType, example }: NonNullable<Endpoint['body']>): string {
  const quoted = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;
  if (!isJson(mediaType)) return `--data-binary ${quoted(String(example))}`;
  return `-d ${quoted(JSON.stringify(example, null, 2))}`;
}

/** A call by the client of `clients/typescript`, in TypeScript; `office` is its instance. */
export function clientSample(endpoint: Endpoint, values: SampleValues): string {
  const { id, method, path, body, response, parameters } = endpoint;
  if (id === 'postAuthLogin') {
    const { email, password } = (body?.example ?? {}) as Record<string, string>;
    return `await office.login(${literal(email)}, ${literal(password)});`;
  }

  if (id === 'postAuthLogout') return 'await office.logout();';
  if (id === 'getDataGenerateToken') return tokenSample(path);

  const [first = 'Id', second = first] = Object.keys(response.body?.schema.properties ?? {});
  if (response.isList && parameters.some(({ name }) => name === 'sort')) {
    return `for await (const record of office.all(${literal(path)}))\n  console.log(record.${first}, record.${second});`;
  }

  const shown = response.isList ? 'data.length' : `data${response.mayBeEmpty ? '?' : ''}.${first}`;
  const results = response.body ? '{ data, error }' : '{ error }';
  const options = callOptions(endpoint, values);
  const passed = Object.keys(options).length > 0 ? `, ${literal(options)}` : '';

  return [
    `const ${results} = await office.${method}(${literal(path)}${passed});`,
    'if (error) throw new Error(error.title);',
    ...(response.body ? [`console.log(${shown});`] : []),
  ].join('\n');
}

/**
 * Returns the call of the endpoint that issues a legacy token, without the client, which logs
 * in with a password.
 */
function tokenSample(path: string): string {
  return `const credentials = btoa(\`\${clientId}:\${clientSecret}\`);
const response = await fetch(\`\${url}${path}\`, { headers: { Authorization: \`Basic \${credentials}\` } });
const { token } = await response.json();`;
}

function callOptions(endpoint: Endpoint, values: SampleValues): object {
  const { body, parameters } = endpoint;
  const pathValues = parameters
    .filter(({ in: place }) => place === 'path')
    .map(({ name }) => [name, pathValue(endpoint, name, values)]);
  const query = requiredQuery(endpoint);
  const namesTenant = parameters.some(({ name }) => name === 'X-Tenant');
  const params = {
    ...(namesTenant && { header: { 'X-Tenant': new Expression('tenant') } }),
    ...(pathValues.length > 0 && { path: Object.fromEntries(pathValues) }),
    ...(query.length > 0 && { query: Object.fromEntries(query) }),
  };

  const isText = body !== undefined && !isJson(body.mediaType);
  return {
    ...(Object.keys(params).length > 0 && { params }),
    ...(body && { body: isText ? new Expression('csv') : body.example }),
    ...(isText && { headers: { 'Content-Type': body.mediaType } }),
  };
}

function pathValue(
  { method, path, parameters }: Endpoint,
  name: string,
  values: SampleValues,
): string | number {
  const schema = parameters.find(each => each.name === name && each.in === 'path')?.schema;
  if (schema?.format === 'uuid') return uuid;
  const isDeleted =
    name === 'id' && ((method === 'DELETE' && path.endsWith('}')) || path.endsWith('/undelete'));
  return isDeleted ? values.deletedId : (values.path[name] ?? 1);
}

/** The parameters of the query that an endpoint requires, with their first values. */
function requiredQuery({ parameters }: Endpoint): [string, string][] {
  const required = ({ in: place, required }: Parameter): boolean => place === 'query' && required;
  return parameters
    .filter(required)
    .map(({ name, schema }) => [name, String(schema.enum?.[0] ?? '1')]);
}

/** Code in place of a value. */
class Expression {
  readonly code: string;
  constructor(code: string) {
    this.code = code;
  }
  [inspect.custom](): string {
    return this.code;
  }
}

/** Maximum characters of a line of an example: the column of the examples is narrow. */
const maxLine = 60;

/** A value as a literal of TypeScript, on one line if it is short. */
function literal(value: unknown): string {
  return inspect(value, { depth: null, maxArrayLength: null, breakLength: maxLine });
}
