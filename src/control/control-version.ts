import { migrationNames } from '../lib/postgres/migration-names.ts';
import type { Queryable } from '../lib/postgres/shared-connection.ts';
import { LaterBuildError } from './later-build.ts';

/** Returns the last control migration of this build. */
export async function controlHead(): Promise<string> {
  return (await migrationNames('control')).at(-1) ?? '';
}

/**
 * Returns the last migration that was applied to the control database; undefined when none was.
 */
export async function controlVersion(control: Queryable): Promise<string | undefined> {
  if (!(await hasMigrations(control))) return undefined;
  const { rows } = await control.query<{ name: string | null }>(
    'select max(name) as name from migrations',
  );
  const [row] = rows;
  return row?.name ?? undefined;
}

/** @throws {LaterBuildError} when a later build has migrated the control database */
export async function requireNoLaterControl(control: Queryable): Promise<void> {
  const [version, head] = await Promise.all([controlVersion(control), controlHead()]);
  if (version && version > head) throw new LaterBuildError('The control database', version);
}

/** Returns true if the control database has a table of migrations. */
export async function hasMigrations(control: Queryable): Promise<boolean> {
  const { rows } = await control.query<{ found: boolean }>(
    `select to_regclass('public.migrations') is not null as found`,
  );
  const [migrations] = rows;
  return migrations?.found === true;
}

/**
 * Returns true if a build with this last control migration can use a control database that is
 * at a later version.
 */
export async function isControlCompatible(control: Queryable, head: string): Promise<boolean> {
  const { rows } = await control.query<{ compatible: boolean | null }>(
    'select bool_and(compatible) as compatible from migrations where name > $1',
    [head],
  );
  const [later] = rows;
  return later?.compatible === true;
}
