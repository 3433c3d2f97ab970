import type pg from 'pg';
import { quoteIdentifier } from '../../../lib/postgres/quote.ts';
import type { ForeignObjects } from '../../databases/copy/foreign-objects.ts';
import { readSequences } from '../../databases/copy/replace-tables.ts';
import { beginSnapshot } from '../../schema/snapshot.ts';
import {
  canonicalTextSettings,
  type DataTable,
  listDataTables,
  readTableChecksums,
} from '../../schema/tenant-tables.ts';
import type { ArchivedTable, ArchiveManifest, LeftOut } from './archive-documents.ts';

/**
 * Settings of the session that reads an archive. With them, a policy that hides rows makes
 * reading an error: otherwise these rows would be missing without notice.
 */
export const archiveSettings = { ...canonicalTextSettings, row_security: 'off' };

/** A table that is archived. */
export interface SourceTable extends ArchivedTable {
  /**
   * SQL of its rows with these columns: a table with its columns, or a query in parentheses, as
   * `copy` takes them.
   */
  readonly copied: string;
  readonly rows: number;
  readonly checksum: string | null;
}

/** The contents of one database that are archived, in the snapshot of its connection. */
export interface DatabaseContents {
  readonly client: pg.Client;
  readonly tables: readonly SourceTable[];
  readonly sequences: ArchiveManifest['sequences'];
  readonly leftOut: readonly LeftOut[];
}

/** The time and the place at which a database was read. */
export type SnapshotFacts = Pick<ArchiveManifest, 'snapshot'> & {
  readonly source: Pick<ArchiveManifest['source'], 'database' | 'postgres'>;
};

/**
 * Begins the transaction in which a database is archived, as it is at one moment
 * (`beginSnapshot`).
 * @param client with `archiveSettings`
 */
export async function beginArchive(client: pg.Client): Promise<SnapshotFacts> {
  await beginSnapshot(client);

  const { rows } = await client.query<{
    at: string;
    id: string;
    database: string;
    postgres: string;
  }>(
    `select to_char(now(), 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as at, pg_current_snapshot()::text as id,
            current_database() as database, current_setting('server_version') as postgres`,
  );
  const [facts] = rows;
  if (!facts) throw new Error('the snapshot has no facts');
  const { at, id, database, postgres } = facts;

  return { snapshot: { at, id }, source: { database, postgres } };
}

/** Facts that a caller knows of a database that is archived. */
export interface ContentsOptions {
  /** Tables of `public` whose rows are not archived, by the reason. */
  readonly except: ReadonlyMap<string, readonly string[]>;
  /** Objects that somebody else has made in the database; undefined: not known. */
  readonly foreign?: ForeignObjects | undefined;
  /** True to name the generated columns of `public`, which `foreign` names otherwise. */
  readonly namesGenerated?: boolean;
}

/**
 * Returns the tables of a database that are archived: the tables of `public`, and those of
 * other schemas that the login may read.
 * @param client in the transaction of `beginArchive`
 * @throws {OperatorError} when rows of `public` would be left out, because a table is foreign
 *   or partitioned
 */
export async function readContents(
  client: pg.Client,
  { except, foreign, namesGenerated = false }: ContentsOptions,
): Promise<DatabaseContents> {
  const ours = await listDataTables(client, [...except.values()].flat());
  const others = await listOtherTables(client);
  const readable = others.filter(({ reason }) => reason === null);
  const computed = await listGenerated(client, [
    ...readable,
    ...(namesGenerated ? ours.map(({ name }) => ({ schema: 'public', name })) : []),
  ]);
  const states = new Map((await readSequences(client, ours)).map(state => [state.name, state]));

  return {
    client,
    tables: [...(await publicTables(client, ours)), ...(await otherTables(client, readable))],
    sequences: [
      ...ours.flatMap(table =>
        table.sequences.map(({ name, column }) => {
          const { lastValue = '1', isCalled = false } = states.get(name) ?? {};
          return { schema: 'public', name, table: table.name, column, lastValue, isCalled };
        }),
      ),
      ...(await readOtherSequences(client, readable)),
    ],
    leftOut: [
      ...[...except].flatMap(([reason, names]) =>
        names.map(name => ({ name: `table public.${name}`, reason })),
      ),
      ...others.flatMap(({ kind, schema, name, reason }) => {
        return reason === null ? [] : [{ name: `${kind} ${schema}.${name}`, reason }];
      }),
      ...(foreign === undefined
        ? [{ name: 'objects without rows', reason: 'this command does not list them' }]
        : []),
      ...computed.map(name => ({ name, reason: reasonOf(name) })),
      ...(foreign?.others ?? [])
        .filter(isWithoutRows)
        .map(name => ({ name, reason: reasonOf(name) })),
      ...(foreign?.schemas.some(({ schema }) => schema === 'pg_catalog')
        ? [{ name: 'large objects', reason: 'they are in no table' }]
        : []),
    ],
  };
}

/** False for a table that `listOtherTables` names with a reason of its own. */
function isWithoutRows(name: string): boolean {
  return !/^(?:foreign table|materialized view) /.test(name);
}

function reasonOf(name: string): string {
  return name.startsWith('generated column ')
    ? 'PostgreSQL computes it from other columns'
    : 'it has no rows of its own';
}

/** Returns the names of the generated columns of tables, whose values are not archived. */
async function listGenerated(
  client: pg.Client,
  tables: readonly Pick<ArchivedTable, 'schema' | 'name'>[],
): Promise<string[]> {
  const { rows } = await client.query<{ name: string }>(
    `select concat_ws('.', nullif(nspname, 'public'), relname, attname) as name
       from json_to_recordset($1) as t (schema text, name text)
       join pg_namespace n on nspname = schema join pg_class c on relnamespace = n.oid and relname = name
       join pg_attribute on attrelid = c.oid and attgenerated <> '' and attnum > 0 and not attisdropped
      order by 1`,
    [JSON.stringify(tables.map(({ schema, name }) => ({ schema, name })))],
  );

  return rows.map(({ name }) => `generated column ${name}`);
}

interface OtherTable extends ArchivedTable {
  readonly kind: string;
  readonly isPartitioned: boolean;
  readonly sequences: readonly {
    readonly column: string;
    readonly schema: string;
    readonly name: string;
  }[];
  /** The reason why the rows of the table are not archived; null: they are archived. */
  readonly reason: string | null;
}

/**
 * Tables of other schemas than `public`. A partition is archived with its table, and an
 * extension has its own.
 */
async function listOtherTables(client: pg.Client): Promise<OtherTable[]> {
  const { rows } = await client.query<OtherTable>(
    `select n.nspname as schema, c.relname as name, c.relkind = 'p' as "isPartitioned",
            case c.relkind when 'f' then 'foreign table' when 'm' then 'materialized view' else 'table' end as kind,
            array(select attname::text from pg_attribute
                   where attrelid = c.oid and attnum > 0 and not attisdropped and attgenerated = '' order by attnum) as columns,
            array(select format_type(atttypid, null) from pg_attribute
                   where attrelid = c.oid and attnum > 0 and not attisdropped and attgenerated = '' order by attnum) as types,
            (select coalesce(json_agg(json_build_object('column', a.attname, 'schema', sn.nspname, 'name', s.relname)
                      order by a.attnum), '[]')
               from pg_depend d join pg_class s on s.oid = d.objid and s.relkind = 'S'
               join pg_namespace sn on sn.oid = s.relnamespace
               join pg_attribute a on a.attrelid = d.refobjid and a.attnum = d.refobjsubid
              where d.classid = 'pg_class'::regclass and d.refclassid = 'pg_class'::regclass and d.refobjid = c.oid
                and d.deptype in ('a', 'i')
                and case when s.relkind = 'S' then has_schema_privilege(sn.oid, 'usage')
                                               and has_sequence_privilege(s.oid, 'select') end) as sequences,
            case when c.relkind = 'f' then 'its rows are elsewhere'
                 when c.relkind = 'm' then 'its rows are those of its query'
                 when not has_schema_privilege(n.oid, 'usage') or not has_table_privilege(c.oid, 'select')
                   then 'the login may not read it'
                 when row_security_active(c.oid) then 'a policy hides rows from the login'
             end as reason
       from pg_class c join pg_namespace n on n.oid = c.relnamespace
      where c.relkind in ('r', 'p', 'm', 'f') and not c.relispartition
        and n.nspname !~ '^pg_' and n.nspname not in ('public', 'information_schema')
        and not exists (select from pg_depend where classid = 'pg_class'::regclass and objid = c.oid and deptype = 'e')
      order by 1, 2`,
  );

  return rows;
}

/** Returns tables of `public` with their rows and checksums, which one statement reads. */
async function publicTables(
  client: pg.Client,
  tables: readonly DataTable[],
): Promise<SourceTable[]> {
  const checksums = await readTableChecksums(client, tables);

  return tables.map(({ name, columns, types }) => {
    const { rows, checksum } = checksums.get(name) ?? { rows: 0, checksum: '0' };
    const table = { schema: 'public', name, columns: [...columns], types: [...types] };
    return { ...table, copied: copiedTable(table), rows, checksum };
  });
}

/** Returns tables of other schemas with their rows and checksums. */
async function otherTables(
  client: pg.Client,
  tables: readonly OtherTable[],
): Promise<SourceTable[]> {
  const found: SourceTable[] = [];

  for (const { schema, name, columns, types, isPartitioned } of tables) {
    const checksums = await readTableChecksums(client, [{ schema, name, columns }]);
    const { rows, checksum } = checksums.get(name) ?? { rows: 0, checksum: '0' };
    const table = { schema, name, columns, types };
    const copied = isPartitioned
      ? `(select ${columnList(columns)} from ${quoteIdentifier(schema)}.${quoteIdentifier(name)})`
      : copiedTable(table);
    found.push({ ...table, copied, rows, checksum });
  }

  return found;
}

/** Returns a table with its columns, as `copy` takes it: it takes no empty list of them. */
function copiedTable({ schema, name, columns }: Omit<ArchivedTable, 'types'>): string {
  const table = `${quoteIdentifier(schema)}.${quoteIdentifier(name)}`;

  return columns.length > 0 ? `${table} (${columnList(columns)})` : table;
}

function columnList(columns: readonly string[]): string {
  return columns.map(quoteIdentifier).join(', ');
}

async function readOtherSequences(
  client: pg.Client,
  tables: readonly OtherTable[],
): Promise<ArchiveManifest['sequences']> {
  const found: ArchiveManifest['sequences'] = [];

  for (const table of tables) {
    for (const { schema, name, column } of table.sequences) {
      const { rows } = await client.query<{ lastValue: string; isCalled: boolean }>(
        `select last_value::text as "lastValue", is_called as "isCalled"
           from ${quoteIdentifier(schema)}.${quoteIdentifier(name)}`,
      );
      const [state] = rows;
      if (state) found.push({ schema, name, table: table.name, column, ...state });
    }
  }

  return found;
}
