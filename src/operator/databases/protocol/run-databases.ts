import type pg from 'pg';
import type { Installation, ServerAccess } from '../../../control/installation.ts';
import { owners } from '../../../control/secret-box.ts';
import { OperatorError } from '../../../lib/log/operator-error.ts';
import { postgresCause } from '../../../lib/log/postgres-causes.ts';
import { withConnection } from '../../../lib/postgres/connection.ts';
import { sqlState } from '../../../lib/postgres/database-error.ts';
import { errorText } from '../../command/texts.ts';
import { requireLogin } from '../../schema/login-fault.ts';
import { readOtherSessions, sessionsText } from '../../schema/other-sessions.ts';
import { RunReplacedError } from '../store/database-stamp.ts';
import {
  beginEpoch,
  type LockedTenant,
  readCurrent,
  recordFacts,
  type TenantDatabase,
} from '../store/database-store.ts';
import { hasFence } from '../store/fence.ts';
import {
  type DatabaseGoal,
  type DatabaseStep,
  databaseProtocol,
  servesEarlier,
} from './database-protocol.ts';
import { DatabaseRun } from './database-run.ts';
import { dropCondemned } from './drop-database.ts';
import type { FenceGuard } from './fence-guard.ts';
import { hasLost, lostText } from './lost-database.ts';
import type { RunPlan } from './run-plan.ts';

export interface RunObservers {
  /** Called before each step. */
  onStep?: ((slug: string, step: DatabaseStep) => void) | undefined;
  /**
   * The signal after whose abort the run retreats, unless the fence is closed already: it then
   * finishes.
   */
  signal?: AbortSignal | undefined;
  /** Puts the tenant back into service if this process dies behind the fence. */
  guard?: FenceGuard | undefined;
  /** Takes a sentence for the operator, when the run goes on all the same. */
  warn?: ((text: string) => void) | undefined;
}

/** The outcome of a run. */
export interface RunResult {
  /** The database that the run has placed, switched to or dropped. */
  readonly target: TenantDatabase | undefined;
  /** The database that the tenant had before. */
  readonly former: TenantDatabase | undefined;
  /** How long requests have waited, at most, in ms. */
  readonly pauseMs: number;
}

/** A tenant whose lock a connection to the control database holds. */
export interface RunContext {
  readonly installation: Installation;
  readonly control: pg.Client;
  readonly tenant: LockedTenant;
}

/**
 * Lets a new run work on the databases of a tenant until its goal is reached. When a step
 * fails, the run gives up: requests of the tenant go on in the database that the tenant has,
 * and what the run has begun is dropped. If the tenant has the new database already, the run
 * has succeeded. What is condemned is dropped, if its server is there.
 * @throws {OperatorError} when a server refuses or breaks off a step, or refuses the login of
 *   the tenant to its new database
 */
export async function runDatabases(
  context: RunContext,
  goal: DatabaseGoal,
  plan: RunPlan = {},
  observers: RunObservers = {},
): Promise<RunResult> {
  const result = await reachGoal(context, goal, plan, observers);

  const { installation, tenant } = context;
  if (closesFence(goal) && result.target) {
    await requireTenantLogin(installation, tenant, result.target).catch(cause => {
      throw new OperatorError(
        `${tenant.slug} has another database now, and its requests get 503. ${errorText(cause)}`,
        { cause },
      );
    });
  }

  return result;
}

async function reachGoal(
  { installation, control, tenant }: RunContext,
  goal: DatabaseGoal,
  plan: RunPlan,
  observers: RunObservers,
): Promise<RunResult> {
  const epoch = await beginEpoch(control, tenant.id);
  await requireSameNames(control, tenant);
  const former = await readCurrent(control, tenant.id);

  const { guard } = observers;
  let first: DatabaseRun | undefined;

  const drive = async (
    to: DatabaseGoal,
    current: TenantDatabase | undefined,
    { onStep, signal }: RunObservers,
  ): Promise<DatabaseRun> => {
    const run = new DatabaseRun(installation, control, tenant, { plan, epoch, current });
    first ??= run;

    try {
      for (const step of databaseProtocol(to, await hasFence(control, tenant.guid))) {
        if (signal?.aborted && isInterruptible(step)) {
          throw new OperatorError('the command was interrupted');
        }
        onStep?.(tenant.slug, step);
        // A tenant that its server refuses stays `provisioning`, so that the next run makes it.
        if (to === 'provision' && step === 'serve') {
          await requireTenantLogin(installation, tenant, run.current);
        }
        await run[step]().catch(error => failStep(control, run, error));
      }
      return run;
    } finally {
      await run.close();
    }
  };

  if (closesFence(goal)) await guard?.protect(tenant.slug);

  try {
    const { target, pause } = await drive(goal, former, observers);

    guard?.release(tenant.slug);
    // `databases` shows what is left
    await dropCondemned(installation, control, tenant, plan.leaveSchemas).catch(() => {});
    return { target, former, pauseMs: pause.ms };
  } catch (error) {
    if (error instanceof RunReplacedError) {
      guard?.release(tenant.slug);
      throw error;
    }

    // It has closed and reserved nothing. To open the current database would be wrong.
    if (servesEarlier(goal)) throw error;

    const now = await giveUp({ installation, control, tenant }, goal, drive, error);
    guard?.release(tenant.slug);

    if (closesFence(goal) && now && now.id !== former?.id) {
      const pauseMs = first?.pause.ms ?? 0;
      await recordFacts(control, now.id, { pauseMs, error: null });
      return { target: now, former, pauseMs };
    }

    throw sqlState(error) === undefined ? error : await stopped(installation, tenant, now, error);
  }
}

/**
 * Logs in to the new database of a tenant as its requests will: `pg_hba.conf` of the server may
 * admit only logins that it names.
 * @throws {OperatorError} when the server refuses the login
 */
async function requireTenantLogin(
  { servers, secrets }: Installation,
  { guid }: LockedTenant,
  current: TenantDatabase | undefined,
): Promise<void> {
  if (!current?.password) throw new Error('the tenant has no database with a password');

  const { server, role, database } = current;
  const password = secrets.open(current.password, owners.rolePassword(guid)).toString();
  await requireLogin(servers.adminUrl(server), { role, database, password });
}

/**
 * @throws {OperatorError} when an operator has changed the row of the tenant, which names
 *   another database
 */
async function requireSameNames(control: pg.Client, { id, slug }: LockedTenant): Promise<void> {
  const { rowCount } = await control.query(
    `select from tenants t join tenant_databases d on d.tenant_id = t.id and d.state = 'current'
      where t.id = $1 and (t.server_id, t.database_name, t.role_name) <> (d.server_id, d.database_name, d.role_name)`,
    [id],
  );
  if (rowCount) {
    throw new OperatorError(
      `The row of ${slug} in tenants names another database than its current one in ` +
        'tenant_databases: nothing was changed. Find out which of the two has its data, and let ' +
        'both rows name it',
    );
  }
}

function closesFence(goal: DatabaseGoal): boolean {
  return goal === 'move' || goal === 'switch' || goal === 'replace';
}

/** Records the error of a step in the row of the database that the run was to make. */
async function failStep(
  control: pg.Client,
  { target }: DatabaseRun,
  error: unknown,
): Promise<never> {
  if (target) await recordFacts(control, target.id, { error: errorText(error) }).catch(() => {});
  throw error;
}

function isInterruptible(step: DatabaseStep): boolean {
  return ['create', 'fill', 'announce fence', 'copy ahead', 'close fence'].includes(step);
}

/**
 * @throws {OperatorError} when the tenant could not be put back into service
 * @returns the database that it has
 */
async function giveUp(
  { control, tenant }: RunContext,
  failed: DatabaseGoal,
  drive: (
    goal: DatabaseGoal,
    current: TenantDatabase | undefined,
    observers: RunObservers,
  ) => Promise<DatabaseRun>,
  cause: unknown,
): Promise<TenantDatabase | undefined> {
  try {
    await drive('give up', await readCurrent(control, tenant.id), {});
    return await readCurrent(control, tenant.id);
  } catch (error) {
    if (error instanceof RunReplacedError) throw error;
    const next = closesFence(failed)
      ? `Requests of ${tenant.slug} may get 503 until another run succeeds, which is tried for ` +
        `15 minutes by itself: bin/backoffice databases prune ${tenant.slug}`
      : 'Look whether its server is there, and run the same command again';

    throw new OperatorError(
      `${errorText(cause)}. Then the run could not retreat either: ${errorText(error)}. ${next}`,
      { cause: error },
    );
  }
}

const noSuchDatabase = '3D000';
const insufficientPrivilege = '42501';
const lockNotAvailable = '55P03';

/**
 * Returns the error of a stopped run, which names the database that serves the tenant, or the
 * command that restores a lost one.
 */
async function stopped(
  installation: Installation,
  { slug }: LockedTenant,
  now: TenantDatabase | undefined,
  cause: unknown,
): Promise<OperatorError> {
  if (now && sqlState(cause) === noSuchDatabase && (await hasLost(installation, now))) {
    return new OperatorError(
      `The command has stopped (${errorText(cause)}): ${lostText(slug, now)}`,
      { cause },
    );
  }

  const state = now
    ? `${slug} is served by ${now.server.name}, as before`
    : `${slug} is not served`;
  const condition = await conditionOf(installation, now, cause);

  return new OperatorError(
    `The command has stopped (${errorText(cause)}): ${state}. ${condition} run it again`,
    {
      cause,
    },
  );
}

function stepOf(cause: unknown): string {
  return postgresCause(cause)?.step ?? 'Look into the log of the server';
}

/** Returns the condition under which the command can be run again. */
async function conditionOf(
  { servers }: ServerAccess,
  now: TenantDatabase | undefined,
  cause: unknown,
): Promise<string> {
  const state = sqlState(cause);
  // The error of a drop names the database and its owner.
  if (cause instanceof OperatorError && sqlState(cause.cause) === insufficientPrivilege) {
    return 'After that,';
  }
  if (state === insufficientPrivilege) {
    return (
      'Let a superuser of the server give the login of its URL what it names (alter table … ' +
      'owner to …). Then'
    );
  }
  if (state !== lockNotAvailable || !now) return `${stepOf(cause)}. Then`;

  const others = await withConnection(servers.adminUrl(now.server), client =>
    readOtherSessions(client, now.database, [now.role]),
  ).catch(() => []);
  if (others.length === 0) {
    return 'Somebody has used its tables for longer than the command waits. Later,';
  }

  return (
    `Others are connected to its database: ${sessionsText(others)}. End their sessions (a ` +
    'move and a swap do it with --end-sessions), and'
  );
}
