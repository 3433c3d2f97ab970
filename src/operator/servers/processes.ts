import type { ControlStatements } from '../../control/installation.ts';
import { isRunning } from '../../control/running-process.ts';
import { shareOf } from '../../tenancy/connections/share.ts';

/** A process of the installation. */
export interface ProcessSummary {
  host: string;
  pid: number;
  kind: string;
  build: string;
  /** The last tenant migration of the build; null for a command. */
  tenantHead: string | null;
  startedAt: string;
  /** Seconds since the last beat. */
  heartbeatAge: number;
  /**
   * False if the last beat is too old: the process is gone, or paused, or cannot reach the
   * control database.
   */
  isRunning: boolean;
  /** `CONNECTION_BUDGET` of the process. */
  connectionBudget: number | null;
  /**
   * The milliseconds by which the clock of the process is ahead of that of the control
   * database; null before its first beat.
   */
  clockAheadMs: number | null;
  /**
   * Connections that a running process of the service may open to each server; null for another
   * process.
   */
  share: number | null;
  id: string;
}

type ProcessRow = Omit<ProcessSummary, 'share'>;

/** Returns the processes that are running, or have beaten within a minute; the oldest first. */
export async function listProcesses({ statements }: ControlStatements): Promise<ProcessSummary[]> {
  const { rows } = await statements.query<ProcessRow>(
    `select host, pid, kind, build, tenant_head as "tenantHead",
            to_char(started_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as "startedAt",
            round(extract(epoch from clock_timestamp() - seen_at))::int as "heartbeatAge",
            ${isRunning('p')} as "isRunning", connection_budget as "connectionBudget",
            clock_ahead_ms as "clockAheadMs", id
       from processes p
      where seen_at > clock_timestamp() - interval '1 minute'
      order by started_at, id`,
  );

  const isCounted = ({ kind, isRunning }: ProcessRow): boolean => kind === 'service' && isRunning;
  const services = rows.filter(isCounted);
  const budgets = services.flatMap(({ connectionBudget }) => connectionBudget ?? []);
  const { tenants: share } = shareOf({
    budget: Math.min(...budgets),
    services: services.length,
    hasControl: false,
    maxControl: 0,
  });

  return rows.map(({ id, ...process }) => ({
    ...process,
    share: isCounted({ id, ...process }) && budgets.length > 0 ? share : null,
    id,
  }));
}
