import { PostgresDialect } from 'kysely';
import { BoundConnection } from '../postgres/bound-connection.ts';
import type { TenantPool } from './tenant-pool.ts';

/**
 * MikroORM's connection of a tenant's driver; the pool acquires its connections from the budget. `close` only ends the
 * pool, for good: MikroORM's own connection would open a new pool for the next query. A transaction that is under way
 * finishes on the connection that it has.
 */
export class TenantConnection extends BoundConnection {
  pool!: TenantPool;

  override createKyselyDialect() {
    return new PostgresDialect({ pool: this.pool as never });
  }

  override async close(): Promise<void> {
    await this.pool.end();
  }
}
