import type { RowValues, Statement } from '../lib/postgres/statement.ts';
import type { Deadline } from '../lib/runtime/deadline.ts';
import { type ControlDatabase, queryStatement } from './database.ts';

/** The facts that decide the queue of a request. */
export interface TenantRequest {
  readonly tenant: { readonly id: number };
  readonly deadline: Deadline;
}

/** The last queued work of each kind and tenant, until it ends. */
const lastQueued = new WeakMap<ControlDatabase, Map<string, Promise<unknown>>>();

/**
 * Runs the work of one tenant on the control database, one request after the other in this
 * process. All tenants share the few connections to the control database: a tenant that sorts
 * 100,000 users without a pause would otherwise use all of them, and no one could log in
 * meanwhile. Work of different kinds does not wait for each other.
 * @throws {DeadlineError} when the deadline of the request passed before the work began
 */
export async function runInQueue<Result>(
  control: ControlDatabase,
  kind: 'list' | 'change',
  { tenant, deadline }: TenantRequest,
  work: () => Promise<Result>,
): Promise<Result> {
  const queued = lastQueued.get(control) ?? new Map<string, Promise<unknown>>();
  lastQueued.set(control, queued);
  const key = `${kind} ${tenant.id}`;
  const result = (queued.get(key) ?? Promise.resolve()).then(() => {
    deadline.throwIfPassed();
    return work();
  });
  const ended = result.then(
    () => {},
    () => {},
  );
  queued.set(key, ended);

  try {
    return await result;
  } finally {
    if (queued.get(key) === ended) queued.delete(key);
  }
}

/**
 * Returns the functions with which a request reads lists of the control database. Each read
 * follows the earlier ones of its tenant.
 */
export function controlReads(control: ControlDatabase, request: TenantRequest) {
  return {
    read: (statement: Statement): Promise<RowValues[]> =>
      runInQueue(control, 'list', request, () => queryStatement(control, statement)),
  };
}
