import type { ControlStatements } from '../../../control/installation.ts';
import { isoTime } from '../../../lib/postgres/iso-time.ts';

/** The database from which a tenant was served from a moment on. */
export interface Place {
  at: string;
  database: string;
  server: string;
  /** The source that the database was filled from, in words. */
  origin: string;
  /** The former place; null for the first one. */
  before: { database: string; server: string } | null;
}

/**
 * Returns the databases that a tenant was served from, in the order of time. A database to
 * which the tenant was switched back is in the list once more.
 */
export async function listPlaces(
  { statements }: ControlStatements,
  tenantId: number,
): Promise<Place[]> {
  const { rows } = await statements.query<Place>(
    `with served as (
       select database_name as database, s.name as server, origin, begins
         from tenant_databases d join servers s on s.id = server_id,
              lateral (select lower(each) as begins from unnest(current_during) as each
                        union select current_since) times
        where tenant_id = $1 and begins is not null)
     select ${isoTime('begins')} as at, database, server, origin,
            lag(json_build_object('database', database, 'server', server)) over (order by begins) as before
       from served order by begins`,
    [tenantId],
  );

  return rows;
}
