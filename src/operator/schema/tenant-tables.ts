import type pg from 'pg';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { quoteIdentifier, quoteLiteral } from '../../lib/postgres/quote.ts';

/** A table of a tenant database or of the control database. */
export interface DataTable {
  readonly name: string;
  /** The stored columns of the table in their order, without generated ones. */
  readonly columns: readonly string[];
  /** The types of the columns, as PostgreSQL names them, without a length or precision. */
  readonly types: readonly string[];
  /** The sequences of its identity and serial columns. */
  readonly sequences: readonly { readonly column: string; readonly name: string }[];
}

/** Tables that describe the database itself: a copy of the data has its own. */
export const identityTables = ['tenant_identity', 'migrations'] as const;

/** Tables whose rows no role may change or delete. */
export const appendOnlyTables: readonly string[] = ['audit_log', 'activities'];

interface CatalogTable extends DataTable {
  /**
   * `r`: an ordinary table; `p`: a partitioned one; `m`: a materialized view; `f`: a foreign
   * table.
   */
  readonly kind: string;
  /** The tables that the table refers to. */
  readonly references: readonly string[];
}

const catalogTables = `
  select c.relname as name, c.relkind as kind,
         array(select attname::text from pg_attribute
                where attrelid = c.oid and attnum > 0 and not attisdropped and attgenerated = '' order by attnum) as columns,
         array(select format_type(atttypid, null) from pg_attribute
                where attrelid = c.oid and attnum > 0 and not attisdropped and attgenerated = '' order by attnum) as types,
         array(select distinct f.relname::text from pg_constraint k join pg_class f on f.oid = k.confrelid
                where k.conrelid = c.oid and k.contype = 'f' and f.oid <> c.oid) as references,
         (select coalesce(json_agg(json_build_object('column', a.attname, 'name', s.relname) order by a.attnum), '[]')
            from pg_depend d join pg_class s on s.oid = d.objid and s.relkind = 'S'
            join pg_attribute a on a.attrelid = d.refobjid and a.attnum = d.refobjsubid
           where d.classid = 'pg_class'::regclass and d.refclassid = 'pg_class'::regclass and d.refobjid = c.oid
             and d.deptype in ('a', 'i')) as sequences
    from pg_class c
   where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p', 'm', 'f')
     and c.relname <> all ($1)
     and not exists (select from pg_depend
                      where classid = 'pg_class'::regclass and objid = c.oid and refclassid = 'pg_extension'::regclass
                        and deptype = 'e')
   order by c.relname`;

/**
 * Returns the tables of the connected database, but those of extensions. A table comes after
 * the tables that it refers to.
 * @param except names of tables that are left out
 * @throws {OperatorError} when rows would be left out, because a table is partitioned or
 *   foreign or a materialized view
 * @throws when foreign keys between different tables form a cycle
 */
export async function listDataTables(
  client: pg.ClientBase,
  except: readonly string[],
): Promise<DataTable[]> {
  const { rows } = await client.query<CatalogTable>(catalogTables, [except]);
  const special = rows.find(({ kind }) => kind !== 'r');
  if (special) {
    throw new OperatorError(
      `${special.name} is not an ordinary table, and its rows cannot be copied: replace it by an ordinary table`,
    );
  }

  const ordered: DataTable[] = [];
  const waiting = [...rows];
  while (waiting.length > 0) {
    const free = waiting.findIndex(
      ({ references }) => !waiting.some(table => references.includes(table.name)),
    );
    const [table] = free < 0 ? [] : waiting.splice(free, 1);
    if (!table) throw new Error('the foreign keys of the tables form a cycle');
    const { name, columns, types, sequences } = table;
    ordered.push({ name, columns, types, sequences });
  }

  return ordered;
}

/**
 * Returns a table with its stored columns, as `copy` takes it: it takes no empty list of them.
 */
export function copyList({ name, columns }: Pick<DataTable, 'name' | 'columns'>): string {
  const list = columns.length > 0 ? ` (${columns.map(quoteIdentifier).join(', ')})` : '';
  return `${quoteIdentifier(name)}${list}`;
}

/** The contents of a table in two numbers. */
export interface TableChecksum {
  readonly rows: number;
  /**
   * The sum of a 64-bit hash of each row's text, as a decimal number: the same for every order
   * of the rows.
   */
  readonly checksum: string;
}

/**
 * Settings of a session whose texts of values are the same on every server: for checksums, and
 * for data as text. JIT compilation costs more than it saves in queries of small tables.
 */
export const canonicalTextSettings: Readonly<Record<string, string>> = {
  timezone: 'UTC',
  datestyle: 'ISO',
  intervalstyle: 'iso_8601',
  extra_float_digits: '1',
  bytea_output: 'hex',
  jit: 'off',
};

/**
 * Counts the rows of tables and computes their checksums, in one statement, and so at one
 * moment. The session has `canonicalTextSettings`. Checksums are comparable between tables with
 * the same columns in the same order.
 * @param tables of one schema, `public` by default, each with an SQL condition for its rows;
 *   all rows count without it
 * @returns the checksums by the name of the table
 */
export async function readTableChecksums(
  client: pg.ClientBase,
  tables: readonly (Pick<DataTable, 'name' | 'columns'> & {
    readonly schema?: string;
    readonly where?: string;
  })[],
): Promise<Map<string, TableChecksum>> {
  if (tables.length === 0) return new Map();

  const parts = tables.map(
    ({ schema = 'public', name, columns, where = 'true' }) =>
      `select ${quoteLiteral(name)} as name, count(*)::text as rows,
              coalesce(sum(hashtextextended(row(${columns.map(quoteIdentifier).join(', ')})::text, 0)::numeric), 0)::text
                as checksum
         from ${quoteIdentifier(schema)}.${quoteIdentifier(name)} where ${where}`,
  );

  const { rows } = await client.query<{ name: string; rows: string; checksum: string }>(
    parts.join(' union all '),
  );
  return new Map(rows.map(row => [row.name, { rows: Number(row.rows), checksum: row.checksum }]));
}

/**
 * Returns the names of the tables whose rows or checksums differ, or that only one database
 * has.
 */
export function differingTables(
  one: ReadonlyMap<string, TableChecksum>,
  other: ReadonlyMap<string, TableChecksum>,
): string[] {
  const names = [...new Set([...one.keys(), ...other.keys()])];
  return names.filter(name => {
    const [first, second] = [one.get(name), other.get(name)];
    return first?.rows !== second?.rows || first?.checksum !== second?.checksum;
  });
}
