import { PostgresDialect } from 'kysely';
import { BoundConnection } from '../postgres/bound-connection.ts';
import type { TenantPool } from './tenant-pool.ts';

/**
 * MikroORM's connection of a tenant's driver; its pool acquires connections from the budget. `close` ends the pool
 * permanently, whereas MikroORM's own connection would open a new pool for the next query. A transaction that is under
 * way finishes on the connection that it has.
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
