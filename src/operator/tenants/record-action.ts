import { newProcess } from '../../control/process-identity.ts';
import { OperatorError } from '../../log/operator-error.ts';
import type { Statements } from '../../postgres/statements.ts';
import { errorText } from '../command/error-text.ts';
import { operatorName } from '../command/operator-name.ts';

/** A change that an operator asks for. Its arguments hold no secret: commands read secrets from stdin. */
export interface Action {
  /** The words of the command, such as `user add`. */
  readonly command: string;
  /** The tenant; null when the command is for several tenants, or for none. */
  readonly slug: string | null;
  readonly arguments: Readonly<Record<string, unknown>>;
  readonly reason: string | null;
}

/**
 * Runs a change, and records who asked for it, when and why. The row is written before the change begins, so that no
 * change is without one; a row that stays `running` is of a command that was killed.
 * @param work resolves to `false` when it has failed
 */
export async function recordAction(
  statements: Statements,
  action: Action,
  work: () => Promise<unknown>,
): Promise<unknown> {
  const { command, slug, reason } = action;
  const [row] = await statements.execute<{ id: string }[]>(
    `insert into operator_actions (operator, build, command, slug, tenant_guid, arguments, reason)
     values (?, ?, ?, ?, (select guid from tenants where slug = ?), ?::jsonb, ?) returning id`,
    [operatorName(), newProcess('command').build, command, slug, slug, JSON.stringify(action.arguments), reason],
  );
  const end = (state: 'done' | 'failed' | 'refused', error: string | null = null) =>
    statements
      .execute(
        `update operator_actions a
            set state = ?, error = ?, finished_at = now(),
                tenant_guid = coalesce(tenant_guid, (select guid from tenants t where t.slug = a.slug))
          where id = ?`,
        [state, error, row?.id ?? null],
      )
      .catch(() => {}); // the change is made, or has failed; its row stays `running`
  try {
    const result = await work();
    await end(result === false ? 'failed' : 'done');
    return result;
  } catch (error) {
    await end(error instanceof OperatorError && error.usage ? 'refused' : 'failed', errorText(error));
    throw error;
  }
}
