import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import { type Pack, pack } from 'tar-stream';
import { copyOut } from '../../../lib/postgres/copy-out.ts';
import type { ArchiveHeader, ArchiveManifest } from './archive-documents.ts';
import { manifestText } from './archive-mac.ts';
import { csvHeader, csvPieces } from './csv-pieces.ts';
import type { DatabaseContents, SnapshotFacts, SourceTable } from './database-contents.ts';
import { headerName, manifestName, pageName, pieceName } from './member-names.ts';
import type { SchemaPage } from './schema-pages.ts';
import { seal } from './seal.ts';

/** Largest piece of a table, in bytes, unless a single row is larger. */
const maxPieceBytes = 16 * 1024 * 1024;

/** The identity of an archive, and the recipients for whom it is sealed. */
export type ArchiveSubject = Pick<
  ArchiveHeader,
  'kind' | 'installation' | 'tenant' | 'name' | 'time' | 'recipients'
>;

export interface ArchivePlan extends SnapshotFacts {
  /** The subject of the archive. Without recipients, as an export, it is a plain tar. */
  readonly subject: ArchiveSubject;
  /** The name of the server in the control database. */
  readonly server: string;
  /** The migrations up to the version of the data, the last one at the end. */
  readonly pages: readonly SchemaPage[];
  /** The contents of the archive, each part in a snapshot of its own. */
  readonly parts: readonly DatabaseContents[];
  /** The key of the archive's code; undefined: the archive gets none. */
  readonly macKey: Buffer | undefined;
  /** Largest piece of a table, in bytes. */
  readonly pieceBytes?: number | undefined;
}

/** An archive that is being written. */
export interface WrittenArchive {
  /**
   * The bytes of the archive. An error of the database destroys the stream; destroying the
   * stream ends the reading of the database.
   */
  readonly body: Readable;
  /**
   * Settles when the last byte is made; rejects with the error of the database, or with an
   * `UnreadArchiveError`.
   */
  readonly finished: Promise<ArchiveManifest>;
  /** Returns the size of the tar, when the body was read to its end. */
  readonly tarBytes: () => number;
}

/** The reader of an archive has ended before its last byte: the reader knows why. */
export class UnreadArchiveError extends Error {
  override name = 'UnreadArchiveError';
}

/**
 * Writes an archive: a tar of a header, the schema, the tables in pieces, and a manifest;
 * compressed, and sealed for its recipients. Its reader sets the pace. Holds three pieces in
 * memory, however large the tables are. `docs/operate/without-us.md` describes the format.
 */
export function writeArchive(plan: ArchivePlan): WrittenArchive {
  const tar = pack();
  // Nobody listens before the body is read, and then an error would end the process.
  tar.on('error', () => {});
  const finished = fill(plan, new MemberWriter(tar, new Date(plan.subject.time))).catch(error => {
    tar.destroy(error);
    throw error;
  });
  finished.catch(() => {}); // the reader of the body gets the error, too

  const plain = tar as unknown as Readable;
  const { recipients } = plan.subject;

  let bytes = 0;
  const body =
    recipients.length > 0
      ? seal(plain, recipients, tarBytes => {
          bytes = tarBytes;
        })
      : plain;

  return { body, finished, tarBytes: () => bytes };
}

async function fill(plan: ArchivePlan, writer: MemberWriter): Promise<ArchiveManifest> {
  const {
    subject,
    server,
    pages,
    parts,
    macKey,
    snapshot,
    source,
    pieceBytes = maxPieceBytes,
  } = plan;
  const { recipients, ...shared } = subject;
  const last = pages.at(-1);
  if (!last) throw new Error('an archive has a schema');

  const header: ArchiveHeader = {
    format: 1,
    ...shared,
    recipients,
    schema: { version: last.name, pages: pages.map(({ name, digest }) => ({ name, digest })) },
    tables: parts.flatMap(({ tables }) =>
      tables.map(({ schema, name, columns, types }) => ({ schema, name, columns, types })),
    ),
  };
  await writer.add(headerName, `${JSON.stringify(header, null, 1)}\n`);

  for (const { name, text } of pages) {
    await writer.add(pageName(name), text);
  }

  const tables: ArchiveManifest['tables'] = [];
  for (const { client, tables: found } of parts) {
    for (const table of found) {
      // Most tables of a small tenant are empty, and each query takes a round trip.
      const csv =
        table.rows === 0
          ? Readable.from([csvHeader(table.columns)])
          : copyOut(client, `copy ${table.copied} to stdout (format csv, header)`);
      tables.push(await writer.addTable(tables.length + 1, table, csv, pieceBytes));
    }
  }

  const manifest: Omit<ArchiveManifest, 'mac'> = {
    format: 1,
    ...shared,
    schemaVersion: last.name,
    schemaDigest: last.digest,
    snapshot,
    source: { server, ...source },
    tables,
    sequences: parts.flatMap(({ sequences }) => sequences),
    leftOut: parts.flatMap(({ leftOut }) => leftOut),
    members: writer.members,
  };
  const text = manifestText(manifest, macKey);
  await writer.add(manifestName, text);
  await writer.end();

  return JSON.parse(text);
}

/** Writes members into a tar, and remembers their names and digests. */
class MemberWriter {
  readonly #tar: Pack;
  readonly #time: Date;
  readonly #members: ArchiveManifest['members'] = [];
  /** Ends when the reader has taken the last member. */
  #taken: Promise<void> = Promise.resolve();

  constructor(tar: Pack, time: Date) {
    this.#tar = tar;
    this.#time = time;
  }

  /** The members so far. */
  get members(): ArchiveManifest['members'] {
    return [...this.#members];
  }

  /**
   * Writes a member as soon as the reader has taken the one before. It does not wait until the
   * reader has taken this one, so that the database sends the next piece meanwhile.
   */
  async add(name: string, content: string | Buffer): Promise<void> {
    const bytes = typeof content === 'string' ? Buffer.from(content) : content;
    const sha256 = createHash('sha256').update(bytes).digest('hex');
    await this.#taken;

    const { promise, resolve, reject } = Promise.withResolvers<void>();
    // The next member, or the end, throws the error.
    promise.catch(() => {});
    this.#taken = promise;

    // The tar is destroyed while a member is written only when its reader has ended.
    const rejectUnread = (cause: Error): void =>
      reject(new UnreadArchiveError(`nobody has read ${name} to its end`, { cause }));
    const entry = { name, size: bytes.length, mode: 0o600, mtime: this.#time };
    try {
      const written = this.#tar.entry(entry, bytes, error =>
        error ? rejectUnread(error) : resolve(),
      );
      // Without a listener, this error would end the process before it reports the reason.
      written.on('error', rejectUnread);
    } catch (error) {
      rejectUnread(error as Error); // the reader has ended between two members
    }
    this.#members.push({ name, bytes: bytes.length, sha256 });
  }

  /**
   * Writes a table.
   * @returns the entry of the manifest
   * @throws when the database sends another number of rows than it has counted in the same
   *   snapshot
   */
  async addTable(
    number: number,
    table: SourceTable,
    csv: AsyncIterable<Buffer>,
    pieceBytes: number,
  ): Promise<ArchiveManifest['tables'][number]> {
    const { schema, name, rows, checksum } = table;
    const pieces: string[] = [];
    let written = 0;

    for await (const piece of csvPieces(csv, pieceBytes)) {
      const member = pieceName(number, table, pieces.length + 1);
      await this.add(member, piece.bytes);
      pieces.push(member);
      written += piece.rows;
    }
    if (written !== rows) {
      throw new Error(`table ${name} has sent ${written} rows instead of ${rows}`);
    }

    return { schema, name, rows, checksum, pieces };
  }

  /** Ends the tar, when the reader has taken every member. */
  async end(): Promise<void> {
    await this.#taken;
    this.#tar.finalize();
  }
}
