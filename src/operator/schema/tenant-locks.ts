import { lockSpaces } from '../../postgres/advisory-locks.ts';
import type { Queryable } from '../../postgres/shared-connection.ts';

/** A tenant as the control database records it. */
export interface TenantRow {
  id: number;
  guid: string;
  /** The server that the tenant is on now: it may have been moved since the run began. */
  serverId: number;
  databaseName: string;
  roleName: string;
  schemaVersion: string | null;
  schemaFingerprint: string | null;
}

/** The locks of tenants, which a run holds in the control database while it migrates them. */
export interface TenantLocks {
  /**
   * Locks a tenant, unless another process holds its lock, and reads it under the lock.
   * @returns `busy` if it was not locked; undefined if it is locked but has been purged
   */
  acquire(id: number): Promise<TenantRow | 'busy' | undefined>;
  release(id: number): Promise<void>;
}

interface Request {
  id: number;
  resolve: (row: TenantRow | 'busy' | undefined) => void;
  reject: (error: unknown) => void;
}

/**
 * Sends the requests of one turn of the event loop together, because tenants that are recorded together end together,
 * and others begin in their place.
 * @param control one connection in pipeline mode
 */
export function createTenantLocks(control: Queryable): TenantLocks {
  let requests: Request[] = [];
  let released: number[] = [];
  let releasing: Promise<unknown> | undefined;

  const acquireAll = async (): Promise<void> => {
    const batch = requests;
    requests = [];
    const ids = [batch.map(({ id }) => id)];
    try {
      const [locks, { rows }] = await Promise.all([
        control.query<{ id: number; locked: boolean }>(
          'select id, pg_try_advisory_lock($1, id) as locked from unnest($2::int[]) as id',
          [lockSpaces.tenant, ...ids],
        ),
        control.query<TenantRow>(tenantsQuery, ids), // sent after the first query, so PostgreSQL runs it under the locks
      ]);
      const locked = new Set(locks.rows.filter(row => row.locked).map(({ id }) => id));
      const rowOf = new Map(rows.map(row => [row.id, row]));
      for (const { id, resolve } of batch) resolve(locked.has(id) ? rowOf.get(id) : 'busy');
    } catch (error) {
      for (const { reject } of batch) reject(error);
    }
  };
  const releaseAll = (): Promise<unknown> => {
    const ids = released;
    [released, releasing] = [[], undefined];
    return control.query('select pg_advisory_unlock($1, id) from unnest($2::int[]) as id', [lockSpaces.tenant, ids]);
  };
  return {
    acquire: id =>
      new Promise((resolve, reject) => {
        if (requests.push({ id, resolve, reject }) === 1) setImmediate(acquireAll);
      }),
    release: async id => {
      released.push(id);
      releasing ??= new Promise<void>(resolve => setImmediate(resolve)).then(releaseAll);
      await releasing;
    },
  };
}

const tenantsQuery = `
  select id::int, guid, server_id as "serverId", database_name as "databaseName", role_name as "roleName",
         schema_version as "schemaVersion", schema_fingerprint as "schemaFingerprint"
    from tenants where id = any ($1)`;
