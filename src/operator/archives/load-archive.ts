import { pipeline } from 'node:stream/promises';
import type pg from 'pg';
import { from as copyFrom } from 'pg-copy-streams';
import { inTransaction } from '../../postgres/in-transaction.ts';
import { quoteIdentifier } from '../../postgres/quote.ts';
import { setSequences, truncate, withoutTriggers } from '../databases/replace-tables.ts';
import { copyList, type DataTable, differingTables, readTableChecksums } from '../schema/tenant-tables.ts';
import { ArchiveFault } from './format/archive-fault.ts';
import type { ArchiveReader } from './format/archive-file.ts';

/**
 * Replaces all data of a database, whose schema is that of the archive, by the data of the archive. Tables and columns
 * that no migration has made are added with their data as text: `doctor` reports them. Then compares rows and checksums
 * of every table with the manifest. All in one transaction: nothing is changed unless everything is right. The session
 * has `canonicalTextSettings`.
 * @returns whether it has added any
 * @throws {ArchiveFault} when a byte of the archive was changed, or the tables differ from the manifest
 */
export async function loadArchive(client: pg.Client, archive: ArchiveReader): Promise<boolean> {
  const { tables } = archive.manifest;
  const load = async (): Promise<void> => {
    await truncate(client, tables, 'cascade');
    for await (const { table, rows } of archive.tables())
      if (table.rows > 0) await pipeline(rows, client.query(copyFrom(`copy ${copyList(table)} from stdin`)));
  };
  return inTransaction(client, async () => {
    const added = await addMissingColumns(client, tables);
    await withoutTriggers(client, tables, load, 'foreign keys');
    const sequences = tables.flatMap(table =>
      table.sequences.filter(({ column }) => !added.has(`${table.name}.${column}`)),
    );
    await setSequences(client, sequences);
    const loaded = await readTableChecksums(client, tables);
    const archived = new Map(tables.map(({ name, rows, checksum }) => [name, { rows, checksum }]));
    const different = differingTables(archived, loaded);
    if (different.length > 0)
      throw new ArchiveFault(
        'wrong_contents',
        `restored, these tables differ from its manifest: ${different.join(', ')}`,
      );
    return added.size > 0;
  });
}

/** Adds the tables and columns that a database lacks, as text. @returns the columns, each with its table before a dot */
async function addMissingColumns(client: pg.Client, tables: readonly DataTable[]): Promise<Set<string>> {
  const { rows } = await client.query<{ table: string; column: string }>(
    `select name as table, "column" from json_to_recordset($1) as t (name text, columns text[]), unnest(columns) "column"
      where not exists (select from pg_attribute
                         where attrelid = to_regclass('public.' || quote_ident(name)) and attname = "column")`,
    [JSON.stringify(tables.map(({ name, columns }) => ({ name, columns })))],
  );
  for (const { table, column } of rows) {
    await client.query(`create table if not exists public.${quoteIdentifier(table)} ()`);
    await client.query(`alter table public.${quoteIdentifier(table)} add ${quoteIdentifier(column)} text`);
  }
  return new Set(rows.map(({ table, column }) => `${table}.${column}`));
}
