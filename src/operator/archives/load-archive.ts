import { pipeline } from 'node:stream/promises';
import type pg from 'pg';
import { from as copyFrom } from 'pg-copy-streams';
import { inTransaction } from '../../postgres/in-transaction.ts';
import { setSequences, truncate, withoutTriggers } from '../databases/replace-tables.ts';
import { copyList, differingTables, readTableChecksums } from '../schema/tenant-tables.ts';
import { ArchiveFault } from './format/archive-fault.ts';
import type { ArchiveReader } from './format/archive-file.ts';

/**
 * Replaces all data of a database, whose schema is that of the archive, by the data of the archive. Then compares rows
 * and checksums of every table with the manifest. All in one transaction: nothing is changed unless everything is
 * right. The session has `canonicalTextSettings`.
 * @throws {ArchiveFault} when a byte of the archive was changed, or the tables differ from the manifest
 */
export async function loadArchive(client: pg.Client, archive: ArchiveReader): Promise<void> {
  const { tables } = archive.manifest;
  const load = async (): Promise<void> => {
    await truncate(client, tables, 'cascade');
    for await (const { table, rows } of archive.tables())
      if (table.rows > 0) await pipeline(rows, client.query(copyFrom(`copy ${copyList(table)} from stdin`)));
  };
  await inTransaction(client, async () => {
    await withoutTriggers(client, tables, load, 'foreign keys');
    const sequences = tables.flatMap(table => table.sequences);
    await setSequences(client, sequences);
    const loaded = await readTableChecksums(client, tables);
    const archived = new Map(tables.map(({ name, rows, checksum }) => [name, { rows, checksum }]));
    const different = differingTables(archived, loaded);
    if (different.length > 0)
      throw new ArchiveFault(
        'wrong_contents',
        `restored, these tables differ from its manifest: ${different.join(', ')}`,
      );
  });
}
