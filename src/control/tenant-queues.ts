import type { RowValues, Statement } from '../lib/postgres/statement.ts';
import type { Deadline } from '../lib/runtime/deadline.ts';
import { KeyedQueue } from '../lib/runtime/keyed-queue.ts';
import { type ControlDatabase, queryStatement } from './database.ts';

/** The facts that decide the queue of a request. */
export interface TenantRequest {
  readonly tenant: { readonly id: number };
  readonly deadline: Deadline;
}

/** The work of each kind and tenant. */
const queues = new WeakMap<ControlDatabase, KeyedQueue>();

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
  const queue = queues.get(control) ?? new KeyedQueue();
  queues.set(control, queue);

  return queue.run(`${kind} ${tenant.id}`, () => {
    deadline.throwIfPassed();
    return work();
  });
}

/**
 * Returns the functions with which a request reads lists of the control database. Each read
 * follows the earlier ones of its tenant.
 */
export function controlReads(control: ControlDatabase, request: TenantRequest) {
  return {
    read: <Row extends object = RowValues>(statement: Statement<Row>): Promise<Row[]> =>
      runInQueue(control, 'list', request, () => queryStatement(control, statement)),
  };
}
