import { expect } from 'chai';
import type { ApiResponse, Client } from '../support/client.ts';

/** A refusal as problem+json; with `fields`, one that names exactly these. */
export function expectRefused(answer: ApiResponse, status: number, code: string, fields?: string[]): void {
  expect({ status: answer.status, code: answer.body?.code, errors: answer.body?.errors }).to.deep.include({
    status,
    code,
  });
  expect(answer.headers.get('content-type')).to.match(/^application\/problem\+json\b/);
  if (fields) expect(Object.keys(answer.body.errors ?? {})).to.have.members(fields);
}

/** An audit entry as it is read over the API. */
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

/** The audit entries of a record, oldest first. */
export async function auditOf(reader: Client, resource: string, key: unknown): Promise<AuditEntry[]> {
  const query = new URLSearchParams({ resource, key: String(key), limit: '1000' });
  const { status, body } = await reader.get(`/api/v1/AuditLog?${query}`);
  expect(status).to.equal(200);
  return body.reverse();
}

/** The id of the newest audit entry: the same before and after means that nothing was recorded between. */
export async function newestAudit(reader: Client): Promise<number> {
  const { body } = await reader.get('/api/v1/AuditLog?limit=1');
  return body[0]?.Id ?? 0;
}

/** A JSON text with one of its members replaced by another JSON text. */
export function withField(body: Record<string, unknown>, field: string, json: string): string {
  const others = Object.entries(body).filter(([name]) => name !== field);
  const members = others.map(([name, value]) => `${JSON.stringify(name)}:${JSON.stringify(value)}`);
  return `{${[...members, `${JSON.stringify(field)}:${json}`].join(',')}}`;
}
