import type { PeopleTransaction } from '../../accounts/people/change-people.ts';
import { type QueryControl, transactControl } from '../../control/database.ts';
import type { Installation } from '../../control/installation.ts';
import { hasManager } from '../../control/managers.ts';
import { isLastException } from '../../control/password-logins.ts';
import { lockPeople } from '../../control/people-lock.ts';
import { permissions } from '../../control/permissions.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { Problem, type ProblemCode } from '../../lib/problems.ts';
import { changeOrUndo } from '../command/change-or-undo.ts';

interface ChangeOptions<Result> {
  /**
   * Makes the change with every permission, by the rules that also apply to administrators of
   * the tenant.
   */
  change: (transaction: PeopleTransaction) => Promise<Result>;
  /** The messages for a change that a rule refuses. */
  refusals?: Partial<Record<ProblemCode, string>>;
  /** True if the change is only tried: it is undone. */
  isDryRun?: boolean;
}

/**
 * Changes users or roles of a tenant for an operator, in one transaction. Changes of the
 * tenant's people follow one another, those of operators and of the API alike.
 * @throws {OperatorError} when a rule refuses the change; when nobody could manage the people
 *   of the tenant any more
 */
export async function changePeopleOf<Result>(
  installation: Installation,
  { id, slug }: { readonly id: number; readonly slug: string },
  { change, refusals = {}, isDryRun = false }: ChangeOptions<Result>,
): Promise<Result> {
  const control = await installation.control();
  const transact = (work: (query: QueryControl) => Promise<Result>) =>
    transactControl(control, work);
  try {
    return await changeOrUndo(transact, isDryRun, async query => {
      await lockPeople(query, id);
      const hadManager = await hasManager(query, id);
      const result = await change({ query, permissions: new Set(permissions) });
      if (hadManager && !(await hasManager(query, id))) throw lastManager(slug);
      return result;
    });
  } catch (error) {
    if (isLastException(error)) throw lastException(slug);
    const refusal = error instanceof Problem ? refusals[error.code] : undefined;
    throw refusal === undefined ? error : new OperatorError(refusal);
  }
}

function lastException(slug: string): OperatorError {
  return new OperatorError(
    `${slug} refuses passwords, and nobody else who manages its users may use one: nothing was changed. Allow ` +
      `passwords first: bin/backoffice edit ${slug} --password-logins allowed`,
  );
}

function lastManager(slug: string): OperatorError {
  return new OperatorError(
    `Nobody could manage the users of ${slug} any more: nothing was changed. Add another user ` +
      `first: bin/backoffice user add ${slug} EMAIL --role Administrator --scope All`,
  );
}
