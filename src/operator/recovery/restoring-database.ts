import type pg from 'pg';
import { databaseNameOf, databaseUrl } from '../../control/server-urls.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { withConnection } from '../../lib/postgres/connection.ts';
import { sqlState } from '../../lib/postgres/database-error.ts';
import { quoteLiteral } from '../../lib/postgres/quote.ts';
import { countText } from '../command/texts.ts';
import { createPrivate, dropOwned, renameOwned } from '../schema/owned-databases.ts';
import { newDatabaseOptions } from '../schema/text-order.ts';
import type { ControlSource } from './control-source.ts';

/*
 * A control database is restored under another name, and gets its own name when it is complete
 * and safe. So no process ever opens a part of it, or one in which revoked sessions are valid.
 */

const maxNameBytes = 63;

/** Returns the name of a database that is made for the restore of a control database. */
export function restoringName(name: string, suffix: 'restoring' | 'later' = 'restoring'): string {
  return `${Buffer.from(name)
    .subarray(0, maxNameBytes - suffix.length - 1)
    .toString()}_${suffix}`;
}

/**
 * Returns the command that ends the restore of a control database.
 * @param restoredFrom `ControlSource.description`
 */
export function repeatCommand(restoredFrom: string): string {
  const options = /(?:^|\/)control\//.test(restoredFrom)
    ? `--archive ${restoredFrom}`
    : '--from < url-file';
  return `bin/backoffice control restore ${options}`;
}

/**
 * Returns the source from which a control database was restored, by the comment of its table
 * `tenants`.
 */
export function restoredFromOf(comment: string | null | undefined): string | undefined {
  return /^restored from (.+)/.exec(comment ?? '')?.[1];
}

/**
 * Marks a control database as complete and safe: the comment of its table `tenants` names its
 * source.
 */
export async function markReady(url: string, description: string): Promise<void> {
  const comment = quoteLiteral(`restored from ${description}`);
  await withConnection(url, client => client.query(`comment on table tenants is ${comment}`));
}

/** Forgets that a control database was restored: the next restore needs an empty one again. */
export async function endRestore({ controlUrl }: { controlUrl: string }): Promise<void> {
  await withConnection(controlUrl, client => client.query('comment on table tenants is null'));
}

/** The state of a database, as far as a restore of the control database must know it. */
export interface ControlState {
  tenants: number;
  /** The source of the restore; undefined: it was not restored, or not completely. */
  restoredFrom: string | undefined;
  /** True if the database has the schema of a control database. */
  hasSchema: boolean;
  /** The tables of the database, each with its schema, without those of extensions. */
  tables: readonly string[];
}

const listTables = `
  select array(
    select format('%I.%I', nspname, relname) from pg_class c join pg_namespace n on n.oid = relnamespace
     where relkind in ('r', 'p', 'm', 'f') and not relispartition
       and nspname !~ '^pg_' and nspname <> 'information_schema'
       and not exists (select from pg_depend where classid = 'pg_class'::regclass and objid = c.oid and deptype = 'e')
     order by 1) as tables, to_regclass('public.tenants') is not null as "hasSchema"`;

/** @returns undefined when the database does not exist */
export async function readState(url: string): Promise<ControlState | undefined> {
  return withConnection(url, async client => {
    const { rows: found } =
      await client.query<Pick<ControlState, 'tables' | 'hasSchema'>>(listTables);
    const { tables = [], hasSchema = false } = found[0] ?? {};
    if (!hasSchema) return { tenants: 0, restoredFrom: undefined, hasSchema, tables };

    const { rows } = await client.query<{ comment: string | null; tenants: number }>(
      `select obj_description('tenants'::regclass, 'pg_class') as comment, (select count(*)::int from tenants) as tenants`,
    );
    return {
      tenants: rows[0]?.tenants ?? 0,
      restoredFrom: restoredFromOf(rows[0]?.comment),
      hasSchema,
      tables,
    };
  }).catch(error => {
    if (sqlState(error) === '3D000') return undefined;
    throw error;
  });
}

/**
 * Returns the state of the control database, in whose place a source may be restored.
 * @throws {OperatorError} when it is in use or somebody else's, or when its restore from
 *   another source has not ended
 */
export async function requireRestorableControl(
  controlUrl: string,
  source: ControlSource,
): Promise<ControlState | undefined> {
  const state = await readState(controlUrl);
  const { restoredFrom, tenants } = state ?? {};
  if (restoredFrom !== undefined && restoredFrom !== source.description) {
    throw new OperatorError(
      `The control database was restored from ${restoredFrom}, and that has not ended. End it: ${repeatCommand(restoredFrom)}`,
    );
  }
  if (restoredFrom === undefined && tenants) {
    throw new OperatorError(
      `The control database has ${countText(tenants, 'tenant')}. Restore into an empty one: stop the service, and ` +
        'rename this one (alter database … rename to …), or name another one in DATABASE_URL',
    );
  }

  if (state) requireNobodyElses(state, state.hasSchema ? state.tables.filter(isPublic) : []);
  return state;
}

function isPublic(table: string): boolean {
  return table.startsWith('public.');
}

/**
 * Requires that an empty control database has no tables of others: a restore drops the database
 * whose name it takes.
 * @param own the tables that a control database has
 * @throws {OperatorError} when it has other ones
 */
function requireNobodyElses({ tables }: ControlState, own: readonly string[]): void {
  const others = tables.filter(table => !own.includes(table));
  if (others.length === 0) return;

  throw new OperatorError(
    `The database of DATABASE_URL has tables that are not of a control database: ${others.join(', ')}. A restore would ` +
      'drop them. Name another database in DATABASE_URL, or rename this one (alter database … rename to …)',
  );
}

/**
 * Creates an empty database, in place of one that a killed run has left.
 * @returns its URL
 */
export async function createEmpty(controlUrl: string, name: string): Promise<string> {
  await onServer(controlUrl, async server => {
    await dropOwned(server, name);
    await createPrivate(server, name, await newDatabaseOptions(server));
  });
  return databaseUrl(controlUrl, name);
}

/**
 * Gives the restored database the name of the control database, in place of an empty one.
 * @param onEmptyRemoved called when no database has the name
 */
export async function putInPlace(
  controlUrl: string,
  from: string,
  onEmptyRemoved: () => void,
): Promise<void> {
  const name = databaseNameOf(controlUrl);
  const [present, restored] = [
    await readState(controlUrl),
    await readState(databaseUrl(controlUrl, from)),
  ];
  if (present?.tenants) {
    throw new OperatorError(
      `The control database has got tenants meanwhile. The restored one is database ${from}`,
    );
  }
  if (present) requireNobodyElses(present, restored?.tables ?? []);

  await onServer(controlUrl, async server => {
    await dropOwned(server, name);
    onEmptyRemoved();
    await renameOwned(server, from, name);
  });
}

export async function dropControlDatabase(controlUrl: string, name: string): Promise<void> {
  await onServer(controlUrl, server => dropOwned(server, name));
}

/**
 * Runs `work` on the server of the control database, also when that database does not exist.
 */
export function onServer<T>(
  controlUrl: string,
  work: (server: pg.Client) => Promise<T>,
): Promise<T> {
  return withConnection(databaseUrl(controlUrl, 'postgres'), work);
}
