import type { Deadline } from '../deadline.ts';
import type { RowValues, Statement } from '../postgres/statement.ts';
import { type ControlDatabase, queryStatement } from './database.ts';

/** A request, as far as its turn depends on it. */
interface TenantRequest {
  readonly tenant: { readonly id: number };
  readonly deadline: Deadline;
}

/** The last turn of each kind and tenant that has not ended. */
const lastTurns = new WeakMap<ControlDatabase, Map<string, Promise<unknown>>>();

/**
 * Runs the work of one tenant on the control database, one request after the other in this process. All tenants share
 * the few connections to the control database: a tenant that sorts 100,000 users without a pause would otherwise use
 * all of them, and no one could log in meanwhile. Work of different kinds does not wait for each other.
 * @throws {DeadlineError} when the deadline of the request passed before its turn
 */
export async function takeTurn<Result>(
  control: ControlDatabase,
  kind: 'list' | 'change',
  { tenant, deadline }: TenantRequest,
  work: () => Promise<Result>,
): Promise<Result> {
  const turns = lastTurns.get(control) ?? new Map<string, Promise<unknown>>();
  lastTurns.set(control, turns);
  const key = `${kind} ${tenant.id}`;
  const turn = (turns.get(key) ?? Promise.resolve()).then(() => {
    deadline.check();
    return work();
  });
  const ended = turn.then(
    () => {},
    () => {},
  );
  turns.set(key, ended);
  try {
    return await turn;
  } finally {
    if (turns.get(key) === ended) turns.delete(key);
  }
}

/** Returns the rows of a list of a tenant, when it is the turn of the request. */
export async function queryList(
  control: ControlDatabase,
  request: TenantRequest,
  statement: Statement,
): Promise<RowValues[]> {
  return takeTurn(control, 'list', request, () => queryStatement(control, statement));
}
