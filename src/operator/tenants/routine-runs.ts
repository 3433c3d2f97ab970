import type { ControlStatements } from '../../installation.ts';
import { isoTime } from '../../postgres/iso-time.ts';

/** The last run of a command that timers run. */
export interface RoutineRun {
  command: string;
  state: 'running' | 'done' | 'failed' | 'refused';
  operator: string;
  startedAt: string;
  error: string | null;
}

/** Returns the last run of each command that has run. @param commands those that timers run */
export async function lastRoutineRuns(
  { statements }: ControlStatements,
  commands: readonly string[],
): Promise<RoutineRun[]> {
  return statements.execute(
    `select distinct on (command) command, state, operator, ${isoTime('started_at')} as "startedAt", error
       from operator_actions where command = any (string_to_array(?, ',')) order by command, id desc`,
    [commands.join(',')],
  );
}
