import type { EntityManager } from '@mikro-orm/postgresql';
import { Kysely, PostgresDialect } from 'kysely';
import type { RowValues, Statement } from '../postgres/table-statements.ts';
import type { TenantClient } from './tenant-client.ts';

/**
 * The transaction of one change. It begins with the first thing that is asked in it, and carries who makes the change,
 * for the audit log; what can be sent together is, in one packet.
 */
export class TenantTransaction {
  readonly #client: TenantClient;
  readonly #actor: string;
  readonly #forkEntityManager: () => EntityManager;
  #begun = false;
  #em: EntityManager | undefined;

  constructor(client: TenantClient, actor: string, forkEntityManager: () => EntityManager) {
    this.#forkEntityManager = forkEntityManager;
    this.#client = client;
    this.#actor = actor;
  }

  /** The rows that a statement returns. */
  async query(statement: Statement): Promise<RowValues[]> {
    const [{ rows }] = await this.#send(() => [this.#client.query<RowValues>(statement)]);
    return rows;
  }

  /** A unit of work in this transaction. */
  get em(): EntityManager {
    if (!this.#em) {
      this.#em = this.#forkEntityManager();
      this.#em.setTransactionContext(this.#asKysely());
    }
    return this.#em;
  }

  /** Makes the change that was prepared, and commits it. @returns the rows that the statement returns */
  async commit(statement: Statement): Promise<RowValues[]> {
    // Where the statement fails, the commit that follows it undoes what was done.
    const [{ rows }, { command }] = await this.#send(() => [
      this.#client.query<RowValues>(statement),
      this.#client.query('commit'),
    ]);
    if (command !== 'COMMIT') throw new Error('the transaction had failed and was rolled back');
    return rows;
  }

  /** Undoes what was done, if anything was. */
  async rollback(): Promise<void> {
    if (this.#begun) await this.#client.query('rollback').catch(() => {});
  }

  /**
   * Queries, the first of which begin the transaction. Should `begin` alone fail, what follows would be done without one, and
   * without an actor: the audit log refuses that, and so the change.
   */
  async #send<Queries extends readonly Promise<unknown>[] | []>(ask: () => Queries) {
    if (this.#begun) return this.#client.sendTogether(ask);
    this.#begun = true;
    const begin = () => [this.#client.query('begin'), this.#client.query({ ...setActor, values: [this.#actor] })];
    const [, , ...answers] = await this.#client.sendTogether(() => [...begin(), ...ask()]);
    return answers as { -readonly [Index in keyof Queries]: Awaited<Queries[Index]> };
  }

  /** This one connection, as MikroORM wants it, which then neither begins nor ends a transaction. */
  #asKysely(): Kysely<unknown> {
    const query = async (...asked: Parameters<TenantClient['query']>) =>
      (await this.#send(() => [this.#client.query(...asked) as unknown as Promise<unknown>]))[0];
    const lent = { query, release: () => {} };
    const pool = { connect: async () => lent, end: async () => {}, options: {} };
    return new Kysely({ dialect: new PostgresDialect({ pool: pool as never }) });
  }
}

const setActor = { name: 'set_actor', text: `select set_config('app.actor', $1, true)` };
