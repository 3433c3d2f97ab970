import type { ControlStatements } from '../../control/installation.ts';
import { isRunning } from '../../control/running-process.ts';
import type { Queryable } from '../../lib/postgres/shared-connection.ts';

/** A running process of the service. */
export interface RunningService {
  host: string;
  pid: number;
  build: string;
  /** The last migration that the build has; null while the process starts. */
  head: string | null;
}

/**
 * Returns the running processes of the service, the oldest first; none of a control database
 * that has no schema yet.
 * @param database the kind of database whose last migration `head` is
 */
export async function runningServices(
  { statements }: ControlStatements,
  database: 'control' | 'tenant',
): Promise<RunningService[]> {
  const { rows: tables } = await statements.query<{ exists: boolean }>(
    `select to_regclass('public.processes') is not null as exists`,
  );
  if (!tables[0]?.exists) return [];

  const { rows } = await statements.query<RunningService>(
    `select host, pid, build, ${database}_head as head from processes p
      where kind = 'service' and ${isRunning('p')} order by started_at, id`,
  );

  return rows;
}

/** A running process with the facts that `doctor` checks. */
export interface RegisteredProcess {
  kind: 'service' | 'command';
  host: string;
  pid: number;
  /** True for a process that counts the limits of requests in Redis; null for a command. */
  sharesLimits: boolean | null;
  /** The trusted networks that have clients, too (`wideNetworks`); null for a command. */
  wideProxies: string[] | null;
  /**
   * The milliseconds by which the clock of the process is ahead of that of the control
   * database.
   */
  clockAheadMs: number | null;
}

/** Returns the running processes of the service and commands, the oldest first. */
export async function registeredProcesses(control: Queryable): Promise<RegisteredProcess[]> {
  const { rows } = await control.query<RegisteredProcess>(
    `select kind, host, pid, shares_limits as "sharesLimits", wide_proxies as "wideProxies",
            clock_ahead_ms as "clockAheadMs"
       from processes p
      where ${isRunning('p')} order by started_at, id`,
  );

  return rows;
}
