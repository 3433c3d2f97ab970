import { randomBytes, randomUUID } from 'node:crypto';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { extract, pack } from 'tar-stream';
import { boundsOf } from '../../src/operator/backup/archive/archive-bytes.ts';
import { archiveDatabase } from '../../src/operator/backup/archive/archive-database.ts';
import type { ArchiveManifest } from '../../src/operator/backup/archive/archive-documents.ts';
import { ArchiveFault } from '../../src/operator/backup/archive/archive-fault.ts';
import { type AgeIdentity, makeIdentity } from '../../src/operator/backup/archive/identities.ts';
import {
  type CheckedArchive,
  checkArchive,
  type ExpectedArchive,
} from '../../src/operator/backup/archive/open-archive.ts';
import { readSchemaPages } from '../../src/operator/backup/archive/schema-pages.ts';
import { seal, unseal } from '../../src/operator/backup/archive/seal.ts';

/** Archives of a test may unpack to any size. */
const noMaxBytes = Number.MAX_SAFE_INTEGER;

/** An archive in memory, and what opens it. */
export interface MadeArchive {
  readonly bytes: Buffer;
  readonly manifest: ArchiveManifest;
  readonly expected: ExpectedArchive & { readonly name: string; readonly installation: string };
  readonly macKey: Buffer;
  readonly identity: AgeIdentity;
}

interface MadeOptions {
  readonly identity?: AgeIdentity;
  readonly macKey?: Buffer;
  readonly installation?: string;
  readonly recipients?: readonly string[];
  readonly pieceBytes?: number;
}

/** A tenant whose database is archived. */
type ArchivedTenant = Readonly<Record<'guid' | 'slug' | 'adminUrl', string>>;

/** Archives the database of a tenant. */
export async function makeArchive(
  tenant: ArchivedTenant,
  options: MadeOptions = {},
): Promise<MadeArchive> {
  const {
    identity = await makeIdentity(),
    macKey = randomBytes(32),
    installation = randomUUID(),
  } = options;
  const whole = { recipients: [identity.recipient], ...options, macKey, installation };
  const { name, manifest, written } = await archiveInto(tenant, whole, buffer);

  return {
    bytes: written,
    manifest,
    expected: { kind: 'tenant', tenant: tenant.guid, name, installation },
    macKey,
    identity,
  };
}

/**
 * Archives the database of a tenant.
 * @param write writes the body to its end
 */
export async function archiveInto<T>(
  { guid, slug, adminUrl }: ArchivedTenant,
  {
    macKey,
    installation,
    recipients,
    pieceBytes,
  }: Required<Pick<MadeOptions, 'macKey' | 'installation' | 'recipients'>> & MadeOptions,
  write: (body: Readable) => Promise<T>,
) {
  const name = `${installation}/tenants/${guid}/20260131T235959.123Z.0a1b2c3d.${randomBytes(3).toString('hex')}.tar.zst.age`;

  const archived = await archiveDatabase(
    { url: adminUrl, server: 'default', pages: await readSchemaPages('tenant') },
    {
      kind: 'tenant',
      installation,
      tenant: { guid, slug, name: `${slug} Ltd` },
      name,
      time: '2026-01-31T23:59:59.123Z',
      recipients: [...recipients],
    },
    macKey,
    write,
    pieceBytes,
  );

  return { ...archived, name };
}

/**
 * Reads every byte of an archive, which its reader gets in chunks that do not end where its
 * parts do.
 */
export function check(archive: MadeArchive, bytes = archive.bytes): Promise<CheckedArchive> {
  const keys = { identities: [archive.identity.identity], macKeys: [archive.macKey] };

  return checkArchive(
    inChunks(bytes),
    archive.expected,
    keys,
    boundsOf(null, bytes.length, noMaxBytes),
  );
}

/** Returns the kind of fault that a check finds; undefined when it finds none. */
export async function faultOf(
  archive: MadeArchive,
  bytes = archive.bytes,
): Promise<string | undefined> {
  try {
    await check(archive, bytes);
    return undefined;
  } catch (error) {
    if (error instanceof ArchiveFault) return error.kind;
    throw error;
  }
}

export async function* inChunks(bytes: Buffer, size = 1_000): AsyncGenerator<Buffer> {
  for (let at = 0; at < bytes.length; at += size) {
    yield bytes.subarray(at, at + size);
  }
}

/** A member of a tar. */
export interface TarMember {
  readonly name: string;
  readonly content: Buffer;
  readonly type?: 'file' | 'symlink';
}

/** Returns the members of an archive. */
export async function membersOf({
  bytes,
  identity,
}: Pick<MadeArchive, 'bytes' | 'identity'>): Promise<TarMember[]> {
  const tar = extract();
  const bounds = boundsOf(null, bytes.length, noMaxBytes);
  Readable.from(unseal(inChunks(bytes), [identity.identity], bounds)).pipe(tar);

  const members: TarMember[] = [];
  for await (const entry of tar) {
    members.push({ name: entry.header.name, content: await buffer(entry) });
  }
  return members;
}

/** Makes a tar of members. */
export async function tarOf(members: readonly TarMember[]): Promise<Buffer> {
  const tar = pack();
  for (const { name, content, type = 'file' } of members) {
    if (type === 'symlink') tar.entry({ name, type, linkname: content.toString() });
    else tar.entry({ name }, content);
  }
  tar.finalize();

  return buffer(tar);
}

/** Seals bytes as an archive is sealed, as everybody can who knows the recipient. */
export function sealBytes(bytes: Buffer, { recipient }: AgeIdentity): Promise<Buffer> {
  return buffer(seal(Readable.from([bytes], { objectMode: false }), [recipient]));
}
