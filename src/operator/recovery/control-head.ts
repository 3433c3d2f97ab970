import type pg from 'pg';
import { controlHead, controlVersion, isControlCompatible } from '../../control/control-version.ts';
import { requireOwnControlSchema } from '../../control/foreign-schema.ts';
import type { InstallationAccess } from '../../control/installation.ts';
import { LaterBuildError } from '../../control/later-build.ts';
import { requireMasterKey } from '../../control/present-key.ts';
import { databaseNameOf } from '../../control/server-urls.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { connectFailure, postgresCause } from '../../lib/log/postgres-causes.ts';
import { withConnection } from '../../lib/postgres/connection.ts';
import { isServerFull, sqlState } from '../../lib/postgres/database-error.ts';
import { quoteIdentifier } from '../../lib/postgres/quote.ts';
import type { Queryable } from '../../lib/postgres/shared-connection.ts';
import { isServiceLogin, operatorLoginText } from '../schema/service-login.ts';
import { requireUsableServer } from '../servers/usable-server.ts';
import { onServer, readState, restoringName } from './restoring-database.ts';

/**
 * Checks that the control database is at the version of this build, with its secrets sealed
 * under the configured master key. Brings an embedded control database to that version; only
 * the operator migrates a configured one.
 * @param isOperator true for a command that changes something, which needs the rights of an
 *   operator
 * @throws {OperatorError} when a configured one is at a version that this build cannot use, or
 *   cannot be used at all, or when a restore of it has not ended
 */
export async function requireControlHead(
  installation: InstallationAccess,
  { isOperator = false }: { isOperator?: boolean } = {},
): Promise<void> {
  const { controlUrl, embedded, dataFolder, secrets } = installation;
  if (embedded && !(await isAtHead(controlUrl, dataFolder))) {
    await requireNoRestoreOnServer(controlUrl);
    await requireNoLost(installation);

    const { createControlDatabase, migrateControl } = await import('../schema/migrate-control.ts');
    await createControlDatabase(controlUrl);
    await migrateControl(controlUrl, dataFolder);
  }

  let isChecked = false;

  await withConnection(controlUrl, async client => {
    if (!embedded) await requireUsableControl(client, { url: controlUrl, isOperator });
    const control = client;
    await requireControlVersion(control, dataFolder);

    isChecked = true;
    await requireNoRestore(control, controlUrl);
    await requireMasterKey(control, secrets);
  }).catch(async error => {
    if (isChecked) throw error;

    await requireNoRestoreOnServer(controlUrl);
    await requireNoLost(installation).catch(lost => {
      // other failures have the same cause as the first one
      if (lost instanceof OperatorError) throw lost;
    });
    return explainFailure(error);
  });
}

async function requireNoLost(installation: InstallationAccess): Promise<void> {
  const { requireNoLostControl } = await import('../backup/lost-control.ts');
  await requireNoLostControl(installation);
}

/**
 * Returns whether the control database exists and has the schema of this build. Loads no
 * migration, which takes 0.3 s.
 * @throws {OperatorError} when its first schema is not that of this build
 */
async function isAtHead(controlUrl: string, dataFolder: string | undefined): Promise<boolean> {
  return withConnection(controlUrl, async client => {
    const control = client;
    await requireOwnControlSchema(control, dataFolder);
    return (await controlVersion(control)) === (await controlHead());
  }).catch(error => {
    if (sqlState(error) !== '3D000') throw error;
    return false;
  });
}

/**
 * @throws {OperatorError} when the schema of the control database is at a version that does not
 *   fit
 */
async function requireControlVersion(
  control: Queryable,
  dataFolder: string | undefined,
): Promise<void> {
  await requireOwnControlSchema(control, dataFolder);
  const [version, head] = await Promise.all([controlVersion(control), controlHead()]);
  if (
    version === head ||
    (version && version > head && (await isControlCompatible(control, head)))
  ) {
    return;
  }
  if (version && version > head) {
    throw new LaterBuildError('The control database', version);
  }

  const state =
    version === undefined
      ? 'has no schema yet'
      : `is at version ${version}, this build needs ${head}`;
  throw new OperatorError(
    `The control database ${state}. Migrate it: bin/backoffice control migrate`,
  );
}

/**
 * Checks the server of a control database that was configured, before anything is written to
 * it.
 * @param client connected to the control database, or to another one if it does not exist yet
 * @throws {OperatorError} with what to do
 * @throws {SharedSessionError} behind a pooler that shares sessions
 */
export async function requireUsableControl(
  client: pg.Client,
  { url, isOperator, exists = true }: { url: string; isOperator: boolean; exists?: boolean },
): Promise<void> {
  if (isOperator && isServiceLogin(url)) throw new OperatorError(operatorLoginText);
  const subject = 'The control database';
  await requireUsableServer(client, { subject, url, isOperator, isControl: exists });
}

/**
 * @throws {OperatorError} with the reason why the control database cannot be used, and the next
 *   step
 */
export function explainFailure(cause: unknown): never {
  if (cause instanceof OperatorError) throw cause;
  if (sqlState(cause) === '3D000') {
    throw new OperatorError(
      'The control database that DATABASE_URL names does not exist. Create it: bin/backoffice control migrate',
      { cause },
    );
  }
  const reason = connectFailure(cause);
  const known = postgresCause(cause);
  if (reason === undefined || known === undefined) throw cause;

  const step = known.step.replaceAll('its URL', 'DATABASE_URL');
  const test = isServerFull(cause) ? '' : `. Then test it: psql "$DATABASE_URL" -c 'select 1'`;
  throw new OperatorError(`The control database cannot be used: ${reason}. ${step}${test}`, {
    cause,
  });
}

/*
 * While a restore of the control database has begun and not ended, the control database does
 * not exist or has no tenant. Nothing may create or fill it then: a restore takes the place of
 * an empty one only.
 */

/**
 * @throws {OperatorError} when the control database has no tenant, and a restore of it has not
 *   ended
 */
async function requireNoRestore(control: Queryable, controlUrl: string): Promise<void> {
  const name = restoringName(databaseNameOf(controlUrl));
  const { rows } = await control.query<{ restoring: boolean }>(
    `select not exists (select from tenants) and exists (select from pg_database where datname = $1) as restoring`,
    [name],
  );
  const [state] = rows;
  if (state?.restoring) throw unfinishedRestore(name);
}

/**
 * Checks what `requireNoRestore` checks, for a control database that does not exist or has no
 * schema. Ignores a server that cannot be used, which the caller reports.
 */
async function requireNoRestoreOnServer(controlUrl: string): Promise<void> {
  const name = restoringName(databaseNameOf(controlUrl));
  const isRestoring = async (): Promise<boolean> => {
    const found = await onServer(controlUrl, server =>
      server.query('select from pg_database where datname = $1', [name]),
    );
    return found.rowCount === 1 && !(await readState(controlUrl))?.tenants;
  };
  if (await isRestoring().catch(() => false)) throw unfinishedRestore(name);
}

function unfinishedRestore(name: string): OperatorError {
  return new OperatorError(
    `A restore of the control database has begun, and has not ended. To give it up, drop database ${quoteIdentifier(name)}. ` +
      'Otherwise run it again, with the same options: bin/backoffice control restore',
  );
}
