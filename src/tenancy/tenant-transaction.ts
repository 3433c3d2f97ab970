import type { EntityManager } from '@mikro-orm/postgresql';
import { Kysely, PostgresDialect } from 'kysely';
import type { RowValues, Statement } from './table.ts';
import type { TenantClient } from './tenant-client.ts';
import type { TenantDriver } from './tenant-driver.ts';

/** What a change looks at before it is made, in its transaction: rows by statements, and entities where a rule has to do with others. */
export class TenantTransaction {
  readonly #driver: TenantDriver;
  readonly #client: TenantClient;
  #em: EntityManager | undefined;

  constructor(driver: TenantDriver, client: TenantClient) {
    this.#driver = driver;
    this.#client = client;
  }

  /** The rows that a statement returns. */
  async query(statement: Statement): Promise<RowValues[]> {
    const { rows } = await this.#client.query<RowValues>(statement);
    return rows;
  }

  /** A unit of work in this transaction. */
  get em(): EntityManager {
    if (!this.#em) {
      this.#em = this.#driver.entityManager();
      this.#em.setTransactionContext(oneConnection(this.#client));
    }
    return this.#em;
  }
}

/** This one connection, as MikroORM wants it, which then neither begins nor ends a transaction. */
function oneConnection(client: TenantClient): Kysely<unknown> {
  const lent = { query: client.query.bind(client), release: () => {} };
  const pool = { connect: async () => lent, end: async () => {}, options: {} };
  return new Kysely({ dialect: new PostgresDialect({ pool: pool as never }) });
}
