import type { Statement } from '../../lib/postgres/statement.ts';
import type { Trace } from '../../lib/tracing/trace.ts';
import type { TenantClient } from './tenant-client.ts';

/**
 * Traces the wait for a connection. If the connection was opened meanwhile, opening it is a
 * step of the wait, although the budget may have begun it for another request of the same
 * tenant: a pool has only the connections of its tenant.
 */
export function traceConnect(
  trace: Trace | undefined,
  connect: () => Promise<TenantClient>,
): Promise<TenantClient> {
  if (!trace) return connect();
  return trace.step('connection', {}, async wait => {
    const startedAt = performance.now();
    const client = await connect();
    if (client.openedAt >= startedAt) {
      wait.addStep('connect', Math.max(client.openingAt, startedAt), client.openedAt);
    }
    return client;
  });
}

/**
 * Traces a query. The span has the verb and the table of its statement, never the text or the
 * values.
 */
export function traceQuery<T>(
  trace: Trace | undefined,
  { text }: Statement<object>,
  query: () => Promise<T>,
): Promise<T> {
  if (!trace) return query();
  return trace.step(
    'query',
    { 'db.system.name': 'postgresql', 'db.query.summary': summaryOf(text) },
    query,
  );
}

/** `select a, (select b from c) from d where e = $1` → `SELECT d` */
function summaryOf(text: string): string {
  let outer = text;
  for (let before = ''; before !== outer; ) {
    before = outer;
    outer = outer.replace(/\([^()]*\)/g, '()');
  }
  const [, verb = 'query'] = /\b(insert|update|delete|select)\b/i.exec(outer) ?? [];
  const [, table = ''] = /\b(?:from|into|update)\s+"?(\w+)/i.exec(outer) ?? [];
  return `${verb.toUpperCase()} ${table}`.trim();
}
