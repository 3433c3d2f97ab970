import { createHash } from 'node:crypto';
import { sqlState } from '../lib/postgres/database-error.ts';
import { nothing, type RowValues, type Statement } from '../lib/postgres/statement.ts';
import { type Problem, problem } from '../lib/problems.ts';

/**
 * Maximum wait for an earlier request with the same key that is still running, in ms. After it,
 * the response is a 409.
 */
const maxWaitMs = 2_000;
const lockNotAvailable = '55P03';

/**
 * A transaction of the database that stores the key with the change: that of the tenant, or the
 * control database.
 */
export interface ChangeTransaction {
  query<Row extends object = RowValues>(statement: Statement<Row>): Promise<Row[]>;
}

/**
 * A change that is made once, although the client may request it again with the same key, as
 * after a lost response. Its rows are stored with the key in the transaction of the change, for
 * 24 hours; the response is made of them again.
 */
export class RepeatableChange {
  /** True once the rows of an earlier request have been found. */
  isReplayed = false;
  /** The rows of the change, or those of the earlier request that made it. */
  rows: RowValues[] = [];
  readonly #key: string;
  readonly #userId: number;
  readonly #fingerprint: Buffer;

  /**
   * @param request what must be equal when the key is used again: the path, the query, and the
   *   fields of the body
   */
  constructor(key: string, userId: number, request: unknown) {
    this.#key = key;
    this.#userId = userId;
    this.#fingerprint = createHash('sha256').update(JSON.stringify(request)).digest();
  }

  /**
   * Makes the change, and returns the statement that stores its rows. If an earlier request has
   * made the change, finds its rows, and returns a statement that changes nothing. Requests
   * with the same key wait for each other.
   * @throws {Problem} `idempotency_in_progress`, `idempotency_key_reused`
   */
  async prepare<Transaction extends ChangeTransaction>(
    transaction: Transaction,
    prepare: (transaction: Transaction) => Promise<Statement>,
  ): Promise<Statement> {
    await this.#lock(transaction);
    const [earlier] = await transaction.query(findRepeatable(this.#userId, this.#key));
    this.isReplayed = earlier !== undefined;

    if (earlier) {
      if (!this.#fingerprint.equals(earlier.fingerprint)) {
        throw problem('idempotency_key_reused');
      }
      this.rows = JSON.parse(earlier.rows);
      return nothing;
    }

    this.rows = await transaction.query(await prepare(transaction));
    return {
      ...store,
      values: [this.#userId, this.#key, this.#fingerprint, JSON.stringify(this.rows)],
    };
  }

  async #lock(transaction: ChangeTransaction): Promise<void> {
    await transaction.query({ ...limitLockWait, values: [`${maxWaitMs}`] });
    try {
      await transaction.query({ ...lock, values: [`idempotency ${this.#userId} ${this.#key}`] });
    } catch (error) {
      if (sqlState(error) !== lockNotAvailable) throw error;
      throw keyInProgress();
    }
    await transaction.query({ ...limitLockWait, values: ['0'] });
  }
}

/** The problem of a request whose key belongs to a request that is still running. */
function keyInProgress(): Problem {
  return problem('idempotency_in_progress', { headers: { 'Retry-After': '2' } });
}

const limitLockWait = {
  name: 'limit_lock_wait',
  text: `select set_config('lock_timeout', $1, true)`,
};
const lock = {
  name: 'lock_idempotency_key',
  text: 'select pg_advisory_xact_lock(hashtextextended($1, 0))',
};
/** The key of an earlier request, with the hash of it, and its rows as JSON. */
type StoredChange = { readonly fingerprint: Buffer; readonly rows: string };

/** Finds the change that an earlier request of the user has made with a key. */
const findRepeatable = (userId: number, key: string): Statement<StoredChange> => ({
  name: 'find_idempotency_key',
  text: `select fingerprint, rows from idempotency_keys
          where user_id = $1 and key = $2 and created_at > now() - interval '24 hours'`,
  values: [userId, key],
});

// Also deletes some expired keys: more than the statement adds, so that their number falls.
const store = {
  name: 'store_idempotency_key',
  text: `with expired as (
           select user_id, key from idempotency_keys where created_at < now() - interval '24 hours'
            order by created_at limit 10 for update skip locked
         ), deleted as (
           delete from idempotency_keys k using expired e
            where (k.user_id, k.key) = (e.user_id, e.key) and (k.user_id, k.key) <> ($1::bigint, $2::text)
         )
         insert into idempotency_keys (user_id, key, fingerprint, rows) values ($1, $2, $3, $4)
         on conflict (user_id, key) do update
           set fingerprint = excluded.fingerprint, rows = excluded.rows, created_at = excluded.created_at`,
};
