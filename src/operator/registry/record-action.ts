import { newProcess } from '../../control/process-identity.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import type { Queryable } from '../../lib/postgres/shared-connection.ts';
import type { RecordBirth } from '../command/operation.ts';
import { operatorName } from '../command/operator-name.ts';
import { errorText } from '../command/texts.ts';

/**
 * A change that an operator asks for, or a run of a timer. Its arguments hold no secret:
 * commands read secrets from stdin.
 */
export interface Action {
  /** The words of the command, such as `user add`. */
  readonly command: string;
  /** The tenant; null when the command is for several tenants, or for none. */
  readonly slug: string | null;
  readonly arguments: Readonly<Record<string, unknown>>;
  readonly reason: string | null;
}

/** An action, and whether a timer repeats it. */
export interface RecordedAction extends Action {
  readonly isRoutine: boolean;
}

/**
 * Removes earlier runs of a command that a timer repeats every few minutes. Of the runs without
 * a reason, the last one of each day (UTC), login and state stays, for a year at most.
 */
const removeEarlierRuns = `
  delete from operator_actions a using operator_actions last
   where last.id = $1 and a.id < last.id and a.reason is null and last.reason is null
     and (a.command, a.arguments) = (last.command, last.arguments)
     and a.slug is not distinct from last.slug
     and split_part(a.operator, '@', 1) = split_part(last.operator, '@', 1)
     and (a.started_at < now() - interval '1 year'
          or a.state = last.state and a.started_at >= date_trunc('day', last.started_at, 'UTC'))`;

/** Inserts the row of a tenant, as a copy of the row of the action that has made it. */
const recordBirth = `
  insert into operator_actions
         (operator, build, command, slug, tenant_guid, arguments, reason, state, started_at, finished_at)
  select operator, build, command, t.slug, t.guid,
         case when a.slug is null then arguments
              else arguments || jsonb_build_object('from', a.slug)
          end,
         reason, 'done', started_at, now()
    from operator_actions a join tenants t on t.slug = $1
   where a.id = $2 and a.slug is distinct from t.slug`;

/**
 * Names the tenant in the row of an action that makes only this one, if its name was in a file.
 */
const nameOnly = `update operator_actions set slug = coalesce(slug, $1) where id = $2`;

/**
 * Runs a change, and records its operator, time and reason. The row is written before the
 * change begins, so that no change is without a row. A row that stays `running` is of a killed
 * command.
 * @param work resolves to `false` when it has failed
 */
export async function recordAction(
  statements: Queryable,
  action: RecordedAction,
  work: (recordBirth: RecordBirth) => Promise<unknown>,
): Promise<unknown> {
  const { command, slug, reason } = action;

  const { rows } = await statements.query<{ id: string }>(
    `insert into operator_actions (operator, build, command, slug, tenant_guid, arguments, reason)
     values ($1, $2, $3, $4, (select guid from tenants where slug = $4), $5::jsonb, $6) returning id`,
    [
      operatorName(),
      newProcess('command').build,
      command,
      slug,
      JSON.stringify(action.arguments),
      reason,
    ],
  );
  const [row] = rows;

  const end = async (
    state: 'done' | 'failed' | 'refused',
    error: string | null = null,
  ): Promise<void> => {
    try {
      await statements.query(
        `update operator_actions a
            set state = $1, error = $2, finished_at = now(),
                tenant_guid = coalesce(tenant_guid, (select guid from tenants t where t.slug = a.slug))
          where id = $3`,
        [state, error, row?.id ?? null],
      );
      if (action.isRoutine) await statements.query(removeEarlierRuns, [row?.id ?? null]);
    } catch {
      // the change is made, or has failed; its row stays `running`
    }
  };

  try {
    const result = await work(async (made, options) => {
      const record = options?.isOnly ? nameOnly : recordBirth;
      await statements.query(record, [made, row?.id ?? null]);
    });
    await end(result === false ? 'failed' : 'done');
    return result;
  } catch (error) {
    await end(
      error instanceof OperatorError && error.usage ? 'refused' : 'failed',
      errorText(error),
    );
    throw error;
  }
}
