import { type ControlDatabase, controlHead, controlVersion, isControlCompatible } from '../control/database.ts';
import type { Installation } from '../installation.ts';
import { connectFailure, OperatorError } from '../operator-error.ts';
import { sqlState } from '../postgres/database-error.ts';
import { requireOwnSession } from '../postgres/session-probe.ts';
import { createControlDatabase, migrateControl } from './migrations/migrate-control.ts';

/**
 * Brings an embedded control database to the version of this build. Only the operator migrates a configured one.
 * @throws {OperatorError} when a configured one is at a version that this build cannot use, or cannot be used at all
 */
export async function requireControlHead({ control, controlUrl, embedded }: Installation): Promise<void> {
  if (embedded) {
    await createControlDatabase(controlUrl);
    await migrateControl(controlUrl);
  }
  if (!embedded) await requireOwnSession(controlUrl).catch(explainFailure);
  await requireControlServer(control).catch(explainFailure);
  const [version, head] = await Promise.all([controlVersion(control).catch(explainFailure), controlHead()]);
  if (version === head || (version && version > head && (await isControlCompatible(control, head)))) return;
  if (version && version > head)
    throw new OperatorError(
      `The control database is at version ${version}, with which this build (${head}) cannot work. Use the newer build`,
    );
  const state = version === undefined ? 'has no schema yet' : `is at version ${version}, this build needs ${head}`;
  throw new OperatorError(`The control database ${state}. Migrate it: npm run control -- migrate`);
}

const minServerVersion = 150_000;

/** @throws {OperatorError} when the server of the control database is too old */
async function requireControlServer(control: ControlDatabase): Promise<void> {
  const [row] = await control.em.execute<{ version: number }[]>(
    `select current_setting('server_version_num')::int as version`,
  );
  requireServerVersion(row?.version ?? 0);
}

/**
 * @param version `server_version_num`: 150003 is PostgreSQL 15.3
 * @throws {OperatorError} when the version is too old for the control database
 */
export function requireServerVersion(version: number): void {
  if (version >= minServerVersion) return;
  const [major, min] = [version, minServerVersion].map(number => Math.floor(number / 10_000));
  throw new OperatorError(
    `The control database is on PostgreSQL ${major}. Upgrade its server: PostgreSQL ${min} or later is required`,
  );
}

function explainFailure(cause: unknown): never {
  if (cause instanceof OperatorError) throw cause;
  if (sqlState(cause) === '3D000')
    throw new OperatorError(
      'The control database that DATABASE_URL names does not exist. Create it: npm run control -- migrate',
      { cause },
    );
  const reason = connectFailure(cause);
  if (reason === undefined) throw cause;
  const remedy = `Correct DATABASE_URL, or start the server, and test it: psql "$DATABASE_URL" -c 'select 1'`;
  throw new OperatorError(`The control database cannot be used: ${reason}. ${remedy}`, { cause });
}
