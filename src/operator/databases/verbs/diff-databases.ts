import type pg from 'pg';
import type { Installation } from '../../../control/installation.ts';
import { requireTenantHead, tenantHead } from '../../../control/tenant-head.ts';
import { OperatorError } from '../../../lib/log/operator-error.ts';
import { withConnection } from '../../../lib/postgres/connection.ts';
import { quoteIdentifier } from '../../../lib/postgres/quote.ts';
import { findTenant } from '../../registry/tenants.ts';
import { beginSnapshot } from '../../schema/snapshot.ts';
import {
  canonicalTextSettings,
  type DataTable,
  differingTables,
  identityTables,
  listDataTables,
  readTableChecksums,
} from '../../schema/tenant-tables.ts';
import { readForeignObjects, rowsLeft } from '../copy/foreign-objects.ts';
import { keptTables } from '../copy/keep-webhooks.ts';
import { runDatabases } from '../protocol/run-databases.ts';
import { withTenant } from '../protocol/with-tenant.ts';
import { readCurrent, readDatabases, type TenantDatabase } from '../store/database-store.ts';
import { chooseOther } from './restored-databases.ts';

/** The difference between the data of a tenant and that of a database beside it. */
export interface DatabaseDifference {
  tenant: string;
  database: string;
  /** The source of the data in `database`. */
  origin: string;
  tables: TableDifference[];
  /**
   * Objects that only one of the two has or that cannot be compared, and the webhooks, which a
   * swap leaves as they are.
   */
  notCompared: string[];
}

/**
 * Compares the present data of a tenant with restored data beside it, or, after a swap, with
 * the former data: the rows that the newer one has added, changed and removed.
 * @throws {OperatorError} when nothing is beside it, or the tenant is not at the version of
 *   this build
 */
export async function diffDatabases(
  installation: Installation,
  slug: string,
  name: string | undefined,
): Promise<DatabaseDifference> {
  return withTenant(installation, slug, async (control, tenant) => {
    const current = await readCurrent(control, tenant.id);
    const other = chooseOther(
      slug,
      await readDatabases(control, tenant.id, ['filled', 'kept']),
      name,
    );
    if (!current) throw new OperatorError(`${slug} has no database`);

    await requireTenantHead(await findTenant(installation, slug));
    if (other.schemaVersion !== (await tenantHead())) {
      await runDatabases({ installation, control, tenant }, 'upgrade', { target: other });
    }

    // After a swap, the former data is the newer one.
    const [now, before] = other.keptBy === 'swap' ? [other, current] : [current, other];
    const tables = await connect(installation, now, client =>
      connect(installation, before, earlier => compareDatabases(client, earlier)),
    );
    const notCompared = await listNotCompared(installation, current, other);

    return { tenant: slug, database: other.database, origin: other.origin, tables, notCompared };
  });
}

async function listNotCompared(
  installation: Installation,
  current: TenantDatabase,
  other: TenantDatabase,
): Promise<string[]> {
  const listed: string[] = [];
  const found = [
    await readForeignObjects(installation, current),
    await readForeignObjects(installation, other),
  ];
  for (const [index, { database }] of [current, other].entries()) {
    const [own, others] = [found[index], found[1 - index]];
    if (!own || !others) continue;
    const tables = own.tables.filter(name => !others.tables.includes(name));
    const names = [...rowsLeft(own), ...tables.map(name => `table public.${name}`), ...own.others];
    listed.push(...names.map(name => `${name} in ${database}`));
  }

  const hasWebhooks = (client: pg.Client) => client.query('select from webhooks limit 1');
  for (const each of [current, other]) {
    if ((await connect(installation, each, hasWebhooks)).rowCount) return [...listed, 'webhooks'];
  }

  return listed;
}

function connect<T>(
  { servers }: Installation,
  { server, database }: TenantDatabase,
  work: (client: pg.Client) => Promise<T>,
): Promise<T> {
  return withConnection(servers.adminUrl(server, database), work, {
    settings: { ...canonicalTextSettings },
  });
}

/** The difference between the rows of a table in two databases of a tenant. */
interface TableDifference {
  table: string;
  /**
   * The numbers of rows: rows that only the present database has, rows that both have with
   * different values, and rows that only the other one has.
   */
  added: number;
  changed: number;
  gone: number;
  /** The first keys of each kind. */
  keys: { added: string[]; changed: string[]; gone: string[] };
}

const maxKeys = 10;
const batch = 2_000;

/**
 * Compares all tables of two databases at the same version, each at one moment.
 * @returns the tables that differ
 */
async function compareDatabases(now: pg.Client, before: pg.Client): Promise<TableDifference[]> {
  for (const client of [now, before]) {
    await beginSnapshot(client);
  }

  const except = [...identityTables, ...keptTables];
  const tables = commonTables(
    await listDataTables(now, except),
    await listDataTables(before, except),
  );
  const differing = differingTables(
    await readTableChecksums(now, tables),
    await readTableChecksums(before, tables),
  );
  const differences: TableDifference[] = [];

  for (const table of tables) {
    if (differing.includes(table.name)) differences.push(await compareTables(now, before, table));
  }

  return differences;
}

/**
 * Returns the tables and columns that both databases have: an addition by hand may be in one of
 * them only.
 */
function commonTables(some: readonly DataTable[], others: readonly DataTable[]): DataTable[] {
  const found = new Map(others.map(({ name, columns }) => [name, columns]));
  return some.flatMap(table => {
    const columns = table.columns.filter(column => found.get(table.name)?.includes(column));
    return columns.length > 0 ? [{ ...table, columns }] : [];
  });
}

/** Reads both tables in the order of their keys, in step. */
async function compareTables(
  now: pg.Client,
  before: pg.Client,
  table: DataTable,
): Promise<TableDifference> {
  const text = await rowsQuery(now, table);

  const difference: TableDifference = {
    table: table.name,
    added: 0,
    changed: 0,
    gone: 0,
    keys: { added: [], changed: [], gone: [] },
  };

  const count = (kind: 'added' | 'changed' | 'gone', { key }: Row): void => {
    difference[kind]++;
    if (difference.keys[kind].length < maxKeys) difference.keys[kind].push(key);
  };

  const [current, earlier] = [readRows(now, text), readRows(before, text)];
  let [one, other] = [await next(current), await next(earlier)];

  while (one || other) {
    const order = !one
      ? 1
      : !other
        ? -1
        : Buffer.compare(Buffer.from(one.key), Buffer.from(other.key));

    if (order < 0 && one) count('added', one);
    else if (order > 0 && other) count('gone', other);
    else if (one && one.hash !== other?.hash) count('changed', one);

    if (order <= 0) one = await next(current);
    if (order >= 0) other = await next(earlier);
  }

  return difference;
}

interface Row {
  key: string;
  hash: string;
}

/**
 * Returns a query of the keys of all rows, in the order of their bytes, and a hash of each row.
 */
async function rowsQuery(client: pg.Client, { name, columns }: DataTable): Promise<string> {
  const { rows } = await client.query<{ column: string }>(
    `select attname as column from pg_index, unnest(indkey) with ordinality as k (attnum, position)
       join pg_attribute a on true
      where indrelid = $1::regclass and indisprimary and attrelid = indrelid and a.attnum = k.attnum order by position`,
    [`public.${quoteIdentifier(name)}`],
  );

  const key = (rows.length > 0 ? rows.map(({ column }) => column) : columns).map(column =>
    quoteIdentifier(column),
  );
  const hash = `hashtextextended(row(${columns.map(quoteIdentifier).join(', ')})::text, 0)`;

  return `select concat_ws(' ', ${key.join(', ')}) collate "C" as key, ${hash} as hash
            from public.${quoteIdentifier(name)} order by 1, 2`;
}

async function* readRows(client: pg.Client, text: string): AsyncGenerator<Row> {
  await client.query(`declare compared no scroll cursor for ${text}`);
  for (;;) {
    const { rows } = await client.query<Row>(`fetch ${batch} from compared`);
    yield* rows;
    if (rows.length < batch) break;
  }
  await client.query('close compared');
}

async function next(rows: AsyncGenerator<Row>): Promise<Row | undefined> {
  const { value, done } = await rows.next();
  return done ? undefined : value;
}
