import { createHash, hkdfSync } from 'node:crypto';
import { z } from 'zod';
import { ArchiveFault } from './archive-fault.ts';
import type { ByteReader } from './byte-reader.ts';

const magic = Buffer.from('SBOARCH1');
const maxHeaderBytes = 64 * 1024;

const headerContract = z.strictObject({
  format: z.literal(1),
  id: z.uuid(),
  /** The guid of the tenant; null for the control database. */
  tenant: z.uuid().nullable(),
  /** Names the data key (`keyFingerprint`). */
  key: z.string(),
});

/** The clear text at the beginning of an archive: which key opens it. */
export type ArchiveHeader = z.output<typeof headerContract>;

/**
 * Returns the first bytes of an archive: 8 bytes that name the format, the length of the header, the header as JSON.
 */
export function encodeHeader(header: ArchiveHeader): Buffer {
  const json = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(4);
  length.writeUInt32BE(json.length);
  return Buffer.concat([magic, length, json]);
}

/** @throws {ArchiveFault} when the file is no archive of this format */
export async function readHeader(reader: ByteReader): Promise<{ header: ArchiveHeader; bytes: Buffer }> {
  const start = await reader.read(magic.length + 4);
  if (!start.subarray(0, magic.length).equals(magic))
    throw new ArchiveFault('damaged', 'its first 8 bytes are not those of an archive');
  const length = start.readUInt32BE(magic.length);
  if (length > maxHeaderBytes) throw new ArchiveFault('damaged', 'the length of its header was changed');
  const json = await reader.read(length);
  const parsed = headerContract.safeParse(parseJson(json));
  if (!parsed.success) throw new ArchiveFault('damaged', 'its header was changed, or is of a later format');
  return { header: parsed.data, bytes: Buffer.concat([start, json]) };
}

/** What every frame of an archive is bound to: the digest of all bytes before them. */
export function associatedData(headerBytes: Buffer): Buffer {
  return createHash('sha256').update(headerBytes).digest();
}

/**
 * Derives the key of one archive from the data key and the archive's header, whose id is never used again
 * (HKDF-SHA-256, RFC 5869). So numbers of frames can be nonces.
 */
export function archiveKey(dataKey: Buffer, headerBytes: Buffer): Buffer {
  return Buffer.from(hkdfSync('sha256', dataKey, associatedData(headerBytes), 'archive frames', 32));
}

function parseJson(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString());
  } catch {
    return undefined;
  }
}
