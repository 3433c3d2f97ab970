import { setTimeout as sleep } from 'node:timers/promises';
import {
  type ControlDatabase,
  type QueryControl,
  setActor,
  transactControl,
} from '../../control/database.ts';
import { hasManager } from '../../control/managers.ts';
import { isLastException } from '../../control/password-logins.ts';
import { tryLockPeople } from '../../control/people-lock.ts';
import { runInQueue } from '../../control/tenant-queues.ts';
import { errorFact, isInteger } from '../../lib/narrow.ts';
import { sqlState } from '../../lib/postgres/database-error.ts';
import { nothing, type RowValues, type Statement } from '../../lib/postgres/statement.ts';
import { isOutcomeUnknown, type Problem, problem, thrownErrors } from '../../lib/problems.ts';
import type { FieldError, FieldErrors } from '../../lib/runtime/field-error.ts';
import type { TenantTransaction } from '../../tenancy/connections/tenant-transaction.ts';
import type { RequestContext } from '../../tenancy/request-context.ts';
import { requireManager, requireScopeAll } from '../../tenancy/require-manager.ts';
import type { AuthServices } from '../auth/auth-services.ts';

/** Maximum wait for another change of the same tenant's people, in ms. */
const maxWaitMs = 2_000;
const pollMs = 10;

/**
 * The transaction of a change of users or roles. Await nothing but its queries: see
 * `transactControl`.
 */
export interface PeopleTransaction {
  readonly query: QueryControl;
  /**
   * The rights that the caller has now: the permissions of the token that the caller's role
   * still has.
   */
  readonly permissions: ReadonlySet<string>;
}

/** The business entity that a user shall belong to, while no request can delete it. */
export interface HeldEntity {
  /** Null: the user shall have none. */
  readonly id: number | null;
  /** When it was created, in ISO 8601 with microseconds; null: there is none. */
  readonly since: string | null;
  /** The error of `EntityId`, unless the tenant has the entity or the user shall have none. */
  readonly errors: FieldErrors;
}

interface PeopleChangeOptions {
  /** Of the business entity that a user shall belong to; null: to none. */
  readonly entityId?: number | null;
  /**
   * Requires more of the caller than the management of users. A repeated request is refused by
   * it, too: its response may have a secret, and the caller may have lost rights since.
   */
  readonly requireAllowed?: (transaction: PeopleTransaction) => Promise<unknown>;
}

/**
 * Changes users or roles of the caller's tenant in one transaction of the control database,
 * which writes the audit entries. A repeated `Idempotency-Key` makes the change once; its caller
 * needs the rights at each request.
 *
 * A tenant always has an active user who can manage its people, whatever its administrators do
 * at the same time:
 * 1. Changes of one tenant's people follow one another: each holds the lock until its
 *    transaction ends. Those of one process wait for each other before they ask for a
 *    connection.
 * 2. I1: before the change, the caller is an active user with scope All and `users.manage`,
 *    read after the lock.
 * 3. I2: after the change, the caller is still such a user; otherwise the transaction is rolled
 *    back.
 * 4. I3: a change that a program makes leaves a person who is such a user, unless there was none
 *    before. Without it, a program could leave a tenant that only programs manage.
 * So nobody takes `users.manage` from themselves, and of two administrators who disable each
 * other, one fails by I1.
 *
 * @param change makes the change, and returns the statement that reads the result. Its second
 *   argument is the business entity, or the error of `EntityId`
 * @returns the rows of that statement
 * @throws {Problem} `rate_limited`; `forbidden` when I1 or I3 does not hold, `wrong_state` when
 *   I2 does not; `unavailable` when another process does not free the lock within 2 s
 */
export async function changePeople(
  { control, peopleLimits }: Pick<AuthServices, 'control' | 'peopleLimits'>,
  context: RequestContext,
  change: (transaction: PeopleTransaction, entity: HeldEntity) => Promise<Statement>,
  { entityId = null, requireAllowed }: PeopleChangeOptions = {},
): Promise<RowValues[]> {
  requireScopeAll(context.caller);
  const administrator = { tenantGuid: context.tenant.guid, userId: context.caller.userId };
  const delayMs = await peopleLimits.changeDelay(administrator);
  const waitUntil = performance.now() + maxWaitMs;

  const changeWith = async (entity: HeldEntity): Promise<RowValues[]> => {
    const limited = (transaction: PeopleTransaction): Promise<Statement> => {
      // not for a repeated request, which changes nothing
      if (delayMs > 0) throw rateLimited(delayMs);
      return change(transaction, entity);
    };
    for (;;) {
      const rows = await attempt(control, context, limited, requireAllowed);
      if (rows && !context.repeatable?.isReplayed) await peopleLimits.countChange(administrator);
      if (rows) return rows;
      if (performance.now() > waitUntil) throw problem('unavailable');
      await sleep(pollMs);
      context.deadline.throwIfPassed();
    }
  };

  return runInQueue(control, 'change', context, () => withEntity(context, entityId, changeWith));
}

/**
 * Returns all errors of a change of users or roles whose body the contract refuses; changes
 * nothing.
 * @param check throws the problem that names them
 * @param entityId the field of the body, undefined if it is not valid
 */
export function errorsOfPeople(
  services: Pick<AuthServices, 'control' | 'peopleLimits'>,
  context: RequestContext,
  check: (transaction: PeopleTransaction, entity: HeldEntity) => Promise<unknown>,
  entityId?: unknown,
): Promise<FieldErrors> {
  const checkOnly = async (transaction: PeopleTransaction, entity: HeldEntity): Promise<never> => {
    await check(transaction, entity);
    throw problem('validation_failed', { errors: entity.errors });
  };

  return thrownErrors(() =>
    changePeople(services, context, checkOnly, {
      entityId: isInteger(entityId) ? entityId : null,
    }),
  );
}

/**
 * Calls a function while no request can delete a business entity. The entity is in the tenant's
 * database, its users are in the control database: DELETE waits for the lock of the row, and
 * counts the users after it has the lock itself.
 */
async function withEntity(
  context: RequestContext,
  id: number | null,
  changeWith: (entity: HeldEntity) => Promise<RowValues[]>,
): Promise<RowValues[]> {
  if (id === null) return changeWith({ id, since: null, errors: {} });
  let rows: RowValues[] | undefined;
  const hold = async (transaction: TenantTransaction): Promise<Statement> => {
    const [found] = await transaction.query({ ...lockEntity, values: [id] });
    rows = await changeWith({
      id,
      since: found?.since ?? null,
      errors: found ? {} : { EntityId: [noEntity] },
    });
    return nothing;
  };

  try {
    await context.write(hold, undefined, false);
  } catch (error) {
    if (!rows) throw error; // with rows, the change has been made, and only the lock was lost
  }
  return rows ?? [];
}

const noEntity: FieldError = { message: 'is not an entity', code: 'unknown_reference' };
const lockEntity: Omit<Statement<{ since: string }>, 'values'> = {
  name: 'lock_entity',
  text: `select to_json(created_at) #>> '{}' as since from entities where id = $1 for key share`,
};

const uniqueViolation = '23505';
/** The fields whose values are unique in a tenant, by the constraints. */
const uniqueFields: Readonly<Record<string, string>> = {
  users_tenant_id_email_unique: 'Email',
  roles_tenant_id_name_unique: 'Name',
  identity_providers_tenant_id_issuer_unique: 'Issuer',
};

/**
 * The problem of a value that a request or a worker has taken at the same time, without the lock
 * of the people: a registration adds a user.
 */
function takenProblem(cause: unknown): Problem {
  const field = uniqueFields[String(errorFact(cause, 'constraint'))];
  if (!field) return problem('duplicate', { cause });

  return problem('duplicate', {
    cause,
    errors: { [field]: [{ message: 'is taken', code: 'taken' }] },
  });
}

/** The problem of a change that leaves nobody who may use a password in a tenant without. */
function lastException(cause: unknown): Problem {
  return problem('wrong_state', {
    cause,
    detail:
      'This tenant refuses passwords, and nobody else who manages its users may use one ' +
      '(/api/v1/auth/sign-in-rules): name another person there first.',
  });
}

/** @returns undefined when another transaction changes people of the tenant */
async function attempt(
  control: ControlDatabase,
  context: RequestContext,
  change: (transaction: PeopleTransaction) => Promise<Statement>,
  requireAllowed: PeopleChangeOptions['requireAllowed'],
): Promise<RowValues[] | undefined> {
  const once = context.repeatable;

  const work = async (query: QueryControl): Promise<RowValues[] | undefined> => {
    if (!(await tryLockPeople(query, context.tenant.id))) return undefined;
    await setActor(query, context.actor);

    const permissions = await requireManager(query, context);
    await requireAllowed?.({ query, permissions });

    const run = <Row extends object = RowValues>({ name, text, values }: Statement<Row>) =>
      query<Row>(name, text, values);
    const changeChecked = async (): Promise<Statement> => {
      const wasManaged = context.caller.program && (await hasManager(query, context.tenant.id));
      const result = await change({ query, permissions });
      if (wasManaged && !(await hasManager(query, context.tenant.id))) {
        throw problem('forbidden', { detail: 'A person must remain who manages the users.' });
      }
      await requireManager(
        query,
        context,
        'You cannot take the management of users from yourself.',
      );
      return result;
    };

    if (!once) return run(await changeChecked());
    await run(await once.prepare({ query: run }, changeChecked));
    return once.rows;
  };

  try {
    return await transactControl(control, work, {
      deadline: context.deadline,
      isRepeatable: false,
    });
  } catch (error) {
    if (sqlState(error) === uniqueViolation) throw takenProblem(error);
    if (isLastException(error)) throw lastException(error);
    throw once && isOutcomeUnknown(error) ? problem('unavailable', { cause: error }) : error;
  }
}

/**
 * The problem of a change that exceeds a limit.
 * @param delayMs until it is allowed
 */
export function rateLimited(delayMs: number): Problem {
  return problem('rate_limited', {
    headers: { 'Retry-After': String(Math.max(1, Math.ceil(delayMs / 1_000))) },
  });
}
