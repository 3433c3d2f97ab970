import { migrationNames } from '../lib/postgres/migration-names.ts';
import type { Statements } from '../lib/postgres/statements.ts';

/** Returns the last control migration of this build. */
export async function controlHead(): Promise<string> {
  return (await migrationNames('control')).at(-1) ?? '';
}

/**
 * Returns the last migration that was applied to the control database; undefined when none was.
 */
export async function controlVersion(control: Statements): Promise<string | undefined> {
  if (!(await hasMigrations(control))) return undefined;
  const [row] = await control.execute<{ name: string | null }[]>(
    'select max(name) as name from migrations',
  );
  return row?.name ?? undefined;
}

/** Returns true if the control database has a table of migrations. */
export async function hasMigrations(control: Statements): Promise<boolean> {
  const [migrations] = await control.execute<{ found: boolean }[]>(
    `select to_regclass('public.migrations') is not null as found`,
  );
  return migrations?.found === true;
}

/**
 * Returns true if a build with this last control migration can use a control database that is
 * at a later version.
 */
export async function isControlCompatible(control: Statements, head: string): Promise<boolean> {
  const [later] = await control.execute<{ compatible: boolean | null }[]>(
    'select bool_and(compatible) as compatible from migrations where name > ?',
    [head],
  );
  return later?.compatible === true;
}
