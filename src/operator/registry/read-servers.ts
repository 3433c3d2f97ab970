import type { ControlStatements } from '../../control/installation.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { isoTime } from '../../lib/postgres/iso-time.ts';
import { serverIdentitySql } from '../../lib/postgres/server-address.ts';

/** A PostgreSQL server with the number of its tenants. Its URL is secret and left out. */
interface ServerSummary {
  name: string;
  prefix: string;
  tenants: number;
  capacity: number | null;
  /** The size of its disk in GiB, as an operator has stated it; null: not stated. */
  diskGb: number | null;
}

/**
 * SQL for the identity of a row of `servers`, also of the server that has the control database.
 */
export const storedIdentity = (row: string): string =>
  `coalesce(${row}.identity, case when ${row}.on_control_server then (${serverIdentitySql}) end)`;

/** Returns all servers, in the order in which they were added. */
export async function listServers({ statements }: ControlStatements): Promise<ServerSummary[]> {
  const { rows } = await statements.query<ServerSummary>(
    `select s.name, s.prefix, count(t.id)::int as tenants, s.capacity, s.disk_gb as "diskGb"
       from servers s left join tenants t on t.server_id = s.id group by s.id order by s.id`,
  );

  return rows;
}

/**
 * Returns the server with the most room for another tenant; undefined when none has room. A
 * server without a limit has more room than any other; among several of them, the one with the
 * fewest tenants has the most.
 */
export function roomiest(servers: readonly ServerSummary[]): ServerSummary | undefined {
  const room = ({ capacity, tenants }: ServerSummary): number =>
    (capacity ?? Number.MAX_SAFE_INTEGER) - tenants;
  const [best] = servers.toSorted((a, b) => room(b) - room(a));
  return best && room(best) > 0 ? best : undefined;
}

/** The size of the tenant databases of a server together. */
interface MeasuredBytes {
  readonly bytes: number;
  /** The last hour in which doctor has measured some of them (RFC 3339, UTC). */
  readonly measuredAt: string;
}

/** Returns the last measured sizes of the tenant databases of each server, by its name. */
export async function bytesByServer({
  statements,
}: ControlStatements): Promise<Map<string, MeasuredBytes>> {
  const { rows } = await statements.query<{ name: string } & MeasuredBytes>(
    `select s.name, sum(database_bytes)::float8 as bytes, ${isoTime('max(hour)')} as "measuredAt"
       from tenants t
       join servers s on s.id = server_id
      cross join lateral (
        select database_bytes, hour
          from tenant_usage
         where tenant_id = t.id and database_bytes is not null
         order by hour desc
         limit 1) measured
      group by 1`,
  );

  return new Map(rows.map(({ name, ...measured }) => [name, measured]));
}

/** The facts that an operator states about a server; undefined: one stays as it is. */
export interface StatedServer {
  /** The maximum number of tenants that are placed there automatically; null: no limit. */
  readonly capacity?: number | null | undefined;
  /** The size of its disk in GiB; null: not stated. */
  readonly diskGb?: number | null | undefined;
}

/**
 * Changes what is stated about a server. Tenants that are there already stay.
 * @param isDryRun true to change nothing
 * @returns the statements before
 * @throws {OperatorError} when there is no server with this name
 */
export async function setServer(
  reader: ControlStatements,
  name: string,
  stated: StatedServer,
  isDryRun: boolean,
): Promise<Pick<ServerSummary, 'capacity' | 'diskGb'>> {
  const server = (await listServers(reader)).find(each => each.name === name);
  if (!server) throw noSuchServer(name);

  const { capacity = server.capacity, diskGb = server.diskGb } = stated;
  if (!isDryRun) {
    await reader.statements.query(
      'update servers set capacity = $1, disk_gb = $2 where name = $3',
      [capacity, diskGb, name],
    );
  }
  return { capacity: server.capacity, diskGb: server.diskGb };
}

export function noSuchServer(name: string): OperatorError {
  return new OperatorError(`There is no server ${name}. List them: bin/backoffice server list`);
}
