import { pipeline } from 'node:stream/promises';
import type pg from 'pg';
import { from as copyFrom } from 'pg-copy-streams';
import { inTransaction } from '../../postgres/in-transaction.ts';
import { quoteIdentifier, quoteLiteral } from '../../postgres/quote.ts';
import { differingTables, readTableChecksums } from '../table-checksums.ts';
import { copyList } from '../tenant-tables.ts';
import { ArchiveFault } from './archive/archive-fault.ts';
import type { ArchivedTable } from './archive/archive-manifest.ts';
import type { ArchiveReader } from './archive/read-archive.ts';

/**
 * Replaces all data of a database, whose schema is that of the archive, by the data of the archive. Then compares rows
 * and checksums of every table with the manifest. All in one transaction: nothing is changed unless everything is
 * right. The session has `canonicalTextSettings`.
 * @throws {ArchiveFault} when a byte of the archive was changed, or the tables differ from the manifest
 */
export async function loadArchive(client: pg.Client, archive: ArchiveReader): Promise<void> {
  const { tables } = archive.manifest;
  const quoted = tables.map(({ name }) => quoteIdentifier(name));
  await inTransaction(client, async () => {
    // The copy is not a change by a user: it writes no audit entries, and replaces the rows of append-only tables.
    await client.query(quoted.map(table => `alter table ${table} disable trigger user`).join(';'));
    if (quoted.length > 0) await client.query(`truncate ${quoted.join(', ')} cascade`);
    for await (const { table, rows } of archive.tables())
      if (table.rows > 0) await pipeline(rows, client.query(copyFrom(`copy ${copyList(table)} from stdin`)));
    await client.query(tables.flatMap(setSequences).join(';'));
    await client.query(quoted.map(table => `alter table ${table} enable trigger user`).join(';'));
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

function setSequences({ sequences }: ArchivedTable): string[] {
  return sequences.map(
    ({ name, lastValue, isCalled }) =>
      `select setval(${quoteLiteral(`public.${quoteIdentifier(name)}`)}, ${BigInt(lastValue)}, ${isCalled})`,
  );
}
