import { expect } from 'chai';
import type { ApiResponse, Client } from '../../support/client.ts';

/**
 * Expects a problem+json response; with `fields`, one whose errors name exactly these fields, or
 * members of them.
 */
export function expectRefused(
  response: ApiResponse,
  status: number,
  code: string,
  fields?: string[],
): void {
  expect({
    status: response.status,
    code: response.body?.code,
    errors: response.body?.errors,
  }).to.deep.include({
    status,
    code,
  });
  expect(response.headers.get('content-type')).to.match(/^application\/problem\+json\b/);
  if (!fields) return;

  const named = Object.keys(response.body.errors ?? {}).map(name =>
    name.replace(/(\[\d+\])+$/, ''),
  );
  expect([...new Set(named)]).to.have.members(fields);
}

/**
 * Expects that a parameter of a list is refused unless it is a positive whole number in its one
 * spelling, given once.
 */
export async function expectPositiveParameter(
  client: Client,
  path: string,
  name: string,
): Promise<void> {
  const values = [
    '0',
    '-1',
    'abc',
    '1e3',
    '%20',
    '',
    '1.5',
    '01',
    '+1',
    ' 1',
    '%201',
    '0x10',
    'NaN',
    'null',
    '1%00',
    '１',
    '1;2',
  ];
  const queries = [
    ...values.map(value => `${name}=${value}`),
    `${name}=1&${name}=1`,
    `${name}=1&${name}=2`,
    `${name}[]=1`,
    `${name}%5B%5D=1`,
    `${name}[$gt]=0`,
    `${name}%5B%24gt%5D=0`,
  ];

  for (const query of queries) {
    expectRefused(await client.get(`${path}?${query}`), 400, 'validation_failed', [name]);
  }
}

/** Expects the problem of a code that another record has. */
export function expectTaken(response: ApiResponse, field: string): void {
  expectRefused(response, 400, 'duplicate');
  const { errors, errorCodes } = response.body;
  expect({ errors, errorCodes }).to.deep.equal({
    errors: { [field]: ['is taken'] },
    errorCodes: { [field]: [{ code: 'taken' }] },
  });
}

/** An audit entry as the API returns it. */
export interface AuditEntry {
  Id: number;
  CreatedAt: string;
  UserId: number | null;
  UserGuid: string | null;
  Action: 'create' | 'update' | 'delete';
  Resource: string;
  Key: string;
  Before: Record<string, unknown> | null;
  After: Record<string, unknown> | null;
  IPAddress: string | null;
  TraceId: string | null;
}

/** Returns the audit entries of a record, oldest first. */
export async function auditOf(
  reader: Client,
  resource: string,
  key: unknown,
): Promise<AuditEntry[]> {
  const query = new URLSearchParams({ resource, key: String(key), limit: '1000' });
  const { status, body } = await reader.get(`/api/v1/AuditLog?${query}`);
  expect(status).to.equal(200);
  return body.reverse();
}

/**
 * Returns the id of the newest audit entry. An equal id before and after means that no change
 * was recorded.
 */
export async function newestAudit(reader: Client): Promise<number> {
  const { body } = await reader.get('/api/v1/AuditLog?limit=1');
  return body[0]?.Id ?? 0;
}

/** Returns a JSON object in which the value of one member is the given JSON text. */
export function withField(body: Record<string, unknown>, field: string, json: string): string {
  const others = Object.entries(body).filter(([name]) => name !== field);
  const members = others.map(([name, value]) => `${JSON.stringify(name)}:${JSON.stringify(value)}`);
  return `{${[...members, `${JSON.stringify(field)}:${json}`].join(',')}}`;
}
