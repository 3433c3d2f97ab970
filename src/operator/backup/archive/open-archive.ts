import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { extract } from 'tar-stream';
import type { z } from 'zod';
import { type ArchiveBounds, type ArchiveBytes, SealedBytes } from './archive-bytes.ts';
import {
  type ArchivedTable,
  type ArchiveHeader,
  type ArchiveKind,
  type ArchiveManifest,
  headerContract,
  manifestContract,
} from './archive-documents.ts';
import { ArchiveFault } from './archive-fault.ts';
import { isSignedBy } from './archive-mac.ts';
import { headerName, isMemberName, manifestName, pageName } from './member-names.ts';
import { unseal } from './seal.ts';

/** The archive that a reader expects. */
export interface ExpectedArchive {
  readonly kind: ArchiveKind;
  /** The guid of the tenant; null: the control database. */
  readonly tenant: string | null;
  /** The name of the object that has the archive. */
  readonly name: string;
  /** The id of the installation; undefined: not known, as the control database is lost. */
  readonly installation: string | undefined;
}

/** Keys that open archives, and keys that prove who has written them. */
export interface OpenKeys {
  /** The identities of age. */
  readonly identities: readonly string[];
  /**
   * The keys of which one must have made the code; undefined: an archive without a right code
   * is accepted, too.
   */
  readonly macKeys: readonly Buffer[] | undefined;
}

/** An archive whose every byte was read. */
export interface CheckedArchive {
  readonly header: ArchiveHeader;
  readonly manifest: ArchiveManifest;
  readonly bytes: ArchiveBytes;
}

/**
 * Maximum bytes of the header and of the manifest, which are held in memory: the manifest of an
 * archive of a terabyte has 20 MB.
 */
const maxDocumentBytes = 64 * 1024 * 1024;

/**
 * Reads every byte of an archive, and proves that it is the expected one, and that the
 * installation has written it. Holds no table in memory.
 * @throws {ArchiveFault} when it is another archive, was changed, was not written by the
 *   installation, or is larger than its bounds
 * @throws the error of the body, as it is
 */
export async function checkArchive(
  body: AsyncIterable<Uint8Array>,
  expected: ExpectedArchive,
  keys: OpenKeys,
  bounds: ArchiveBounds,
): Promise<CheckedArchive> {
  const sealed = new SealedBytes();
  const tar = new CountedTar(unseal(body, keys.identities, bounds, sealed));
  const seen: ArchiveManifest['members'] = [];
  let header: ArchiveHeader | undefined;
  let manifest: ArchiveManifest | undefined;

  for await (const { name, content } of readMembers(tar.chunks())) {
    if (name === headerName) {
      const bytes = await collect(content, maxDocumentBytes);
      header = parseDocument(headerContract, bytes, name);
      requireExpected(header, expected);
      seen.push({ name, ...digestOf(bytes) });
    } else if (name === manifestName) {
      const bytes = await collect(content, maxDocumentBytes);
      manifest = parseManifest(bytes, keys.macKeys);
    } else {
      seen.push({ name, ...(await digestContent(content)) });
    }
  }

  if (!header || !manifest) {
    throw new ArchiveFault('damaged', 'it ends before its manifest, so it is no archive');
  }
  requireSameMembers(manifest.members, seen);
  requireConsistent(header, manifest);

  const bytes = { ...sealed.end(), unpackedBytes: tar.bytes };
  if (bounds.sha256 !== null && bounds.sha256 !== bytes.sha256) {
    throw new ArchiveFault('damaged', 'its SHA-256 is not that of the bytes that were written');
  }

  return { header, manifest, bytes };
}

/** Counts the bytes of a tar. */
class CountedTar {
  readonly #source: AsyncIterable<Buffer>;
  bytes = 0;

  constructor(source: AsyncIterable<Buffer>) {
    this.#source = source;
  }

  async *chunks(): AsyncGenerator<Buffer> {
    for await (const chunk of this.#source) {
      this.bytes += chunk.length;
      yield chunk;
    }
  }
}

/** A piece of a table: CSV with a header row. */
export interface OpenedPiece {
  readonly table: ArchivedTable;
  readonly csv: Buffer;
}

/**
 * Returns the pieces of the tables of an archive that was checked, in their order. Each is
 * exactly what was checked, also if somebody has replaced the object since. Holds one piece in
 * memory.
 * @throws {ArchiveFault} when the object was replaced
 * @throws the error of the body, as it is
 */
export async function* readPieces(
  body: AsyncIterable<Uint8Array>,
  identities: readonly string[],
  { header, manifest, bytes }: CheckedArchive,
): AsyncGenerator<OpenedPiece> {
  const replaced = new ArchiveFault('damaged', 'it was replaced while it was read');
  const members = new Map(manifest.members.map(member => [member.name, member]));
  const tables = new Map(
    manifest.tables.flatMap(({ pieces }, index) =>
      pieces.map(piece => [piece, header.tables[index]] as const),
    ),
  );
  let left = tables.size;

  for await (const { name, content } of readMembers(unseal(body, identities, bytes))) {
    const table = tables.get(name);
    if (!table) continue;

    const member = members.get(name);
    const csv = await collect(content, member?.bytes ?? 0);
    if (digestOf(csv).sha256 !== member?.sha256) throw replaced;
    yield { table, csv };
    left--;
  }

  if (left > 0) throw replaced;
}

/** Returns the header of an archive, and reads no more of it. Its writer is not proved. */
export async function readHeader(
  body: AsyncIterable<Uint8Array>,
  identities: readonly string[],
): Promise<ArchiveHeader> {
  const bounds = { size: maxDocumentBytes, unpackedBytes: maxDocumentBytes, sha256: null };
  for await (const { name, content } of readMembers(unseal(body, identities, bounds))) {
    return parseDocument(headerContract, await collect(content, maxDocumentBytes), name);
  }
  throw new ArchiveFault('damaged', 'it has no member');
}

interface Member {
  readonly name: string;
  /** The content, which must be read to its end before the next member. */
  readonly content: AsyncIterable<Uint8Array>;
}

/**
 * Returns the members of a tar: the header, pages, pieces, and the manifest, each once.
 * @throws {ArchiveFault} for other members, another order, a link, a name that leaves the
 *   folder, or a missing end
 */
async function* readMembers(tar: AsyncIterable<Buffer>): AsyncGenerator<Member> {
  const entries = extract();
  const source = Readable.from(tar, { objectMode: false });
  const fed = pipeline(source, entries as unknown as NodeJS.WritableStream);
  fed.catch(() => {}); // `entries` gets the error, too
  const order = new MemberOrder();

  try {
    for await (const entry of entries) {
      const { name, type } = entry.header;
      order.add(name, type);
      yield { name, content: readContent(entry as AsyncIterable<Uint8Array>) };
      // The rest that the caller has not read is skipped.
      entry.resume();
    }
    await fed;
  } catch (error) {
    throw toFault(error);
  } finally {
    entries.destroy();
    source.destroy();
    await fed.catch(() => {});
  }
}

async function* readContent(entry: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  try {
    yield* entry;
  } catch (error) {
    throw toFault(error);
  }
}

/** Returns the fault that an error of the tar stands for; other errors as they are. */
function toFault(error: unknown): unknown {
  const { message } = error as Error;
  if (!tarErrors.test(message)) return error;

  return new ArchiveFault('damaged', `its tar cannot be read: ${message}`, { cause: error });
}

/** Messages of `tar-stream`. */
const tarErrors = /^(?:Unexpected end of data|Invalid (?:tar )?header|Header exceeds max size)/;

/** Checks the order of the members of an archive. */
class MemberOrder {
  readonly #names = new Set<string>();
  #last = 0;

  /** @throws {ArchiveFault} when this member may not come next */
  add(name: string, type: string | null | undefined): void {
    const shown = JSON.stringify(name);
    if (type !== 'file') throw new ArchiveFault('damaged', `its member ${shown} is no file`);
    if (!isMemberName(name)) {
      throw new ArchiveFault('damaged', `it has a member ${shown}, as no archive has`);
    }
    if (this.#names.has(name)) {
      throw new ArchiveFault('damaged', `it has the member ${shown} twice`);
    }

    const rank = rankOf(name);
    const mayFollow = rank === this.#last ? rank === 2 || rank === 3 : rank > this.#last;
    const isFirst = this.#names.size === 0;
    if (!mayFollow || isFirst !== (rank === 1)) {
      throw new ArchiveFault('damaged', `its member ${shown} is not where it belongs`);
    }

    this.#names.add(name);
    this.#last = rank;
  }
}

function rankOf(name: string): number {
  if (name === headerName) return 1;
  if (name === manifestName) return 4;
  return name.startsWith('schema/') ? 2 : 3;
}

function parseManifest(bytes: Buffer, macKeys: readonly Buffer[] | undefined): ArchiveManifest {
  if (macKeys !== undefined && !isSignedBy(bytes.toString(), macKeys)) {
    throw new ArchiveFault(
      'forged',
      'its code is absent, or no key of this installation has made it: nobody knows who has written it',
    );
  }

  return parseDocument(manifestContract, bytes, manifestName);
}

function parseDocument<Contract extends z.ZodType>(
  contract: Contract,
  bytes: Buffer,
  name: string,
): z.output<Contract> {
  const result = contract.safeParse(parseJson(bytes));
  if (!result.success) {
    throw new ArchiveFault('damaged', `its ${name} was changed, or is of a later format`);
  }

  return result.data;
}

function parseJson(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString());
  } catch {
    return undefined;
  }
}

function requireExpected(
  {
    kind,
    installation,
    tenant,
    name,
  }: Pick<ArchiveHeader, 'kind' | 'installation' | 'tenant' | 'name'>,
  expected: ExpectedArchive,
): void {
  if (expected.installation !== undefined && installation !== expected.installation) {
    throw new ArchiveFault(
      'foreign',
      `installation ${installation} has made it, and this is another one`,
    );
  }
  if (kind !== expected.kind || (tenant?.guid ?? null) !== expected.tenant) {
    throw new ArchiveFault(
      'foreign',
      `it is an archive of ${tenant ? `tenant ${tenant.guid}` : 'the control database'}`,
    );
  }
  if (name !== expected.name) {
    throw new ArchiveFault('foreign', `it was made under another name: ${name}`);
  }
}

function requireSameMembers(
  expected: ArchiveManifest['members'],
  found: ArchiveManifest['members'],
): void {
  const isSame =
    expected.length === found.length &&
    expected.every((member, index) => {
      const other = found[index];
      return (
        member.name === other?.name &&
        member.sha256 === other.sha256 &&
        member.bytes === other.bytes
      );
    });
  if (!isSame) throw new ArchiveFault('damaged', 'its members are not those of its manifest');
}

/** Compares the two documents: a reader of one need not read the other. */
function requireConsistent(header: ArchiveHeader, manifest: ArchiveManifest): void {
  const subjects = [header, manifest].map(({ kind, installation, tenant, name, time }) =>
    JSON.stringify([kind, installation, tenant, name, time]),
  );
  const pages = header.schema.pages.map(({ name, digest }) => [pageName(name), digest].join());
  const pageMembers = manifest.members.filter(({ name }) => name.startsWith('schema/'));
  const tables = [header, manifest].map(each =>
    JSON.stringify(each.tables.map(({ schema, name }) => [schema, name])),
  );
  const pieces = manifest.tables.flatMap(table => table.pieces);
  const pieceMembers = manifest.members.filter(({ name }) => name.startsWith('data/'));
  const last = header.schema.pages.at(-1);

  const isConsistent =
    subjects[0] === subjects[1] &&
    tables[0] === tables[1] &&
    pages.join('\n') === pageMembers.map(({ name, sha256 }) => [name, sha256].join()).join('\n') &&
    pieces.join('\n') === pieceMembers.map(({ name }) => name).join('\n') &&
    last?.name === header.schema.version &&
    last.name === manifest.schemaVersion &&
    last.digest === manifest.schemaDigest;
  if (!isConsistent) throw new ArchiveFault('damaged', 'its header and its manifest differ');
}

/** @throws {ArchiveFault} when there are more bytes */
async function collect(content: AsyncIterable<Uint8Array>, maxBytes: number): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;

  for await (const chunk of content) {
    bytes += chunk.length;
    if (bytes > maxBytes) throw new ArchiveFault('damaged', 'one of its members is too large');
    chunks.push(chunk);
  }

  return Buffer.concat(chunks);
}

function digestOf(bytes: Uint8Array): { bytes: number; sha256: string } {
  return { bytes: bytes.length, sha256: createHash('sha256').update(bytes).digest('hex') };
}

async function digestContent(
  content: AsyncIterable<Uint8Array>,
): Promise<{ bytes: number; sha256: string }> {
  const hash = createHash('sha256');
  let bytes = 0;

  for await (const chunk of content) {
    hash.update(chunk);
    bytes += chunk.length;
  }

  return { bytes, sha256: hash.digest('hex') };
}
