import { mayBeCommitted } from '../../lib/postgres/commit-outcome.ts';
import type { RowValues, Statement } from '../../lib/postgres/statement.ts';
import { outcomeUnknown } from '../../lib/problems.ts';
import type { Deadline } from '../../lib/runtime/deadline.ts';
import { QueryGroups } from './query-groups.ts';
import type { TenantClient } from './tenant-client.ts';
import { commitSingle } from './tenant-transaction.ts';

/** A change that one statement makes as a whole. */
export interface SingleChange {
  /** The actor of the change, as JSON for the audit log. */
  actor: string;
  /** Has `withActor`. */
  change: Statement;
  /** Called when the checks of the change have passed, before it is sent. */
  beforeCommit?: () => void;
  /** The deadline of the request that makes the change. */
  deadline?: Deadline | undefined;
  /**
   * True for a change that adds nothing to the feed of changes, so that nobody reads it next.
   */
  isUnfed?: boolean;
}

interface Waiting extends SingleChange {
  resolve: (rows: RowValues[]) => void;
  reject: (error: unknown) => void;
}

interface SharedCommitsOptions {
  connect: () => Promise<TenantClient>;
  /** Makes a change as if there were no others: on a connection of its own. */
  changeAlone: (change: SingleChange) => Promise<RowValues[]>;
}

const maxGroupSize = 8;
/**
 * The number of changes that are committed alone after a group has failed: while many changes
 * are refused, few are made twice.
 */
const aloneAfterFailure = 64;

/**
 * Commits changes of one tenant together: those that arrive in one turn of the event loop, or
 * wait for a connection at the same time. A commit waits for the disk, and each transaction
 * wakes a process of the server twice, which together costs more than the insert and its audit
 * entry.
 *
 * Each change behaves as if it were alone:
 *
 *   1. Each statement sets its actor before the triggers of its rows run, so each audit entry
 *      names its own request.
 *   2. When a statement fails or waits for a lock, the transaction is rolled back, and each
 *      change is made again on a connection of its own. So no change fails or waits because of
 *      another one.
 *   3. A change is never made twice: it is made again only if PostgreSQL reported that the
 *      transaction failed.
 *   4. A change whose deadline has passed is not sent. If it passes later, the connection is
 *      destroyed, and the outcome of all its changes is unknown, as that of a single one. So a
 *      change with little time left is committed alone.
 */
export class SharedCommits {
  readonly #options: SharedCommitsOptions;
  readonly #groups: QueryGroups<Waiting>;
  /** Changes that are yet to be committed alone. */
  #alone = 0;

  constructor(options: SharedCommitsOptions) {
    this.#options = options;
    this.#groups = new QueryGroups({
      connect: options.connect,
      run: (client, group) => this.#commit(client, group),
      keyOf: () => '',
      maxGroupSize: () => (this.#alone > 0 ? 1 : maxGroupSize),
    });
  }

  /**
   * Makes a change.
   * @returns the rows of its statement
   */
  change(change: SingleChange): Promise<RowValues[]> {
    return new Promise((resolve, reject) => {
      this.#groups.add({ ...change, resolve, reject });
    });
  }

  async #commit(client: TenantClient, group: readonly Waiting[]): Promise<void> {
    const options = this.#options;
    if (this.#alone > 0) this.#alone--;
    const first = group[0]!;
    if (!group.every(({ isUnfed }) => isUnfed)) client.pool.changedAt = performance.now();
    for (const { beforeCommit } of group) beforeCommit?.();

    if (group.length === 1) {
      first.resolve(await commitSingle(client, withActor(first)));
      return;
    }

    const statements = group.map(withActor);
    const rows = await commitTogether(client, statements);
    if (!rows) this.#alone = aloneAfterFailure;

    for (const [index, change] of group.entries()) {
      if (rows) change.resolve(rows[index] ?? []);
      else options.changeAlone(change).then(change.resolve, change.reject);
    }
  }
}

function withActor({ change, actor }: SingleChange): Statement {
  return change.withActor?.(actor) ?? change;
}

/**
 * A statement that waits for a lock longer than this, in ms, does not hold up the others of its
 * transaction.
 */
const lockTimeoutMs = 50;
const begin = `begin; set local lock_timeout = ${lockTimeoutMs}`;

/**
 * Executes statements, each of which sets its actor, in one transaction and one packet.
 * @returns the rows of each statement; undefined when one of them failed, so that none has
 *   changed anything
 * @throws {Problem} `outcomeUnknown` when the commit may have taken effect without a
 *   confirmation
 */
async function commitTogether(
  client: TenantClient,
  statements: readonly Statement[],
): Promise<RowValues[][] | undefined> {
  const wasAlive = client.isAlive;
  const rows: RowValues[][] = statements.map(() => []);
  let executed = 0;
  let isBegun = false;

  const send = () => [
    client.query(begin).then(() => (isBegun = true)),
    ...statements.map(async (statement, index) => {
      rows[index] = await client.rows(statement);
      executed++;
    }),
    client.query('commit'),
  ];

  try {
    await client.sendTogether(send);
  } catch (error) {
    if (!wasAlive) throw error;
    // If `begin` alone failed, each statement that was executed has been a transaction by
    // itself.
    const isUncertain = !isBegun && executed > 0;
    if (isUncertain || mayBeCommitted(error, executed === statements.length)) {
      throw outcomeUnknown(error);
    }
    return undefined;
  }

  return rows;
}
