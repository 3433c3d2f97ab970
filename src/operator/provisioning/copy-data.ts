import { pipeline } from 'node:stream/promises';
import type pg from 'pg';
import { from as copyFrom, to as copyTo } from 'pg-copy-streams';
import { quoteIdentifier } from '../../postgres/quote.ts';

/**
 * Tables that describe the database itself, and imports, which belong to the tenant that received their files. They are
 * not copied.
 */
const ownTables = ['tenant_identity', 'migrations', 'imports', 'import_chunks'];

/**
 * Replaces all data of one tenant database by the data that another one with the same schema has at one moment. The
 * source is only read and is served meanwhile; the target changes in the caller's transaction.
 */
export async function copyData(source: pg.Client, target: pg.Client): Promise<void> {
  await source.query('begin isolation level repeatable read read only');
  try {
    const tables = await tablesInOrder(source);
    const quoted = tables.map(({ name }) => quoteIdentifier(name));
    // The copy is not a change by a user: it writes no audit entries, and replaces the rows of append-only tables.
    for (const table of quoted) await target.query(`alter table ${table} disable trigger user`);
    await target.query(`truncate ${quoted.join(', ')}`);
    for (const { name, columns } of tables) await copyTable(source, target, name, columns);
    for (const table of quoted) await target.query(`alter table ${table} enable trigger user`);
  } finally {
    await source.query('rollback');
  }
}

interface Table {
  name: string;
  columns: string[];
}

async function copyTable(source: pg.Client, target: pg.Client, name: string, columns: string[]): Promise<void> {
  const table = `${quoteIdentifier(name)} (${columns.map(quoteIdentifier).join(', ')})`;
  await pipeline(
    source.query(copyTo(`copy ${table} to stdout (format binary)`)),
    target.query(copyFrom(`copy ${table} from stdin (format binary)`)),
  );
  // The next number follows the highest one that was copied.
  const { rows } = await target.query<{ column: string; sequence: string }>(
    `select attname as column, pg_get_serial_sequence(quote_ident($1), attname) as sequence
      from pg_attribute where attrelid = quote_ident($1)::regclass and attidentity <> ''`,
    [name],
  );
  for (const { column, sequence } of rows) {
    await target.query(
      `select setval('${sequence}', coalesce(max(${quoteIdentifier(column)}), 0) + 1, false)
         from ${quoteIdentifier(name)}`,
    );
  }
}

/** Returns every table with its stored columns. A table comes after the tables that it refers to. */
async function tablesInOrder(client: pg.Client): Promise<Table[]> {
  const { rows: tables } = await client.query<Table>(
    `select c.relname as name, array_agg(a.attname::text order by a.attnum) as columns
      from pg_class c
      join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
      where c.relnamespace = 'public'::regnamespace and c.relkind = 'r' and c.relname <> all ($1)
      group by c.relname order by c.relname`,
    [ownTables],
  );
  const { rows: references } = await client.query<{ from: string; to: string }>(
    `select conrelid::regclass::text as from, confrelid::regclass::text as to from pg_constraint
      where contype = 'f' and connamespace = 'public'::regnamespace and conrelid <> confrelid`,
  );
  const ordered: Table[] = [];
  const waiting = [...tables];
  while (waiting.length > 0) {
    const free = waiting.findIndex(({ name }) =>
      references.every(reference => reference.from !== name || !waiting.some(table => table.name === reference.to)),
    );
    if (free < 0) throw new Error('the foreign keys of the tables form a cycle');
    ordered.push(...waiting.splice(free, 1));
  }
  return ordered;
}
