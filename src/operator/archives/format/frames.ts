import { createCipheriv, createDecipheriv } from 'node:crypto';
import { ArchiveFault } from './archive-fault.ts';

/** Bytes of a frame before it is sealed. Only the last frame of an archive may be shorter. */
export const frameBytes = 64 * 1024;
export const tagBytes = 16;
const sealedFrameBytes = frameBytes + tagBytes;
const maxFrames = 2 ** 32;

/*
 * Authenticated encryption of a stream in frames: the STREAM construction (Hoang, Reyhanitabar, Rogaway and Vizár,
 * CRYPTO 2015), with AES-256-GCM.
 *
 *   F1 (nonce) The nonce of a frame is its number and whether it is the last one. A key is used for one stream only, so
 *      no nonce repeats for a key.
 *   F2 (order) A frame opens only as the one with its number: a frame that is missing, doubled or moved is detected.
 *   F3 (end) Only the last frame opens as the last one: a stream that is cut after a frame, or goes on, is detected.
 *   F4 (owner) Each frame is bound to `associated`, so that it opens in no other stream.
 */

/** Returns the 12 bytes of a nonce: seven zeros, the number of the frame, and 1 for the last frame. */
function nonceOf(frame: number, isLast: boolean): Buffer {
  if (frame >= maxFrames) throw new Error('an archive has at most 2^32 frames');
  const nonce = Buffer.alloc(12);
  nonce.writeUInt32BE(frame, 7);
  nonce.writeUInt8(isLast ? 1 : 0, 11);
  return nonce;
}

/**
 * Seals a stream in frames. Holds two frames in memory.
 * @param key 32 bytes, used for no other stream
 * @param associated what the stream is bound to
 */
export async function* sealFrames(
  source: AsyncIterable<Buffer>,
  key: Buffer,
  associated: Buffer,
): AsyncGenerator<Buffer> {
  const seal = (frame: number, isLast: boolean, plain: Buffer): Buffer => {
    const cipher = createCipheriv('aes-256-gcm', key, nonceOf(frame, isLast), { authTagLength: tagBytes });
    cipher.setAAD(associated);
    return Buffer.concat([cipher.update(plain), cipher.final(), cipher.getAuthTag()]);
  };
  let frame = 0;
  for await (const { bytes, isLast } of inPieces(source, frameBytes)) yield seal(frame++, isLast, bytes);
}

/**
 * Opens a stream that `sealFrames` has sealed. No byte of a frame is returned before the whole frame is authenticated.
 * @param offset position of the first frame in its file, for the messages
 * @throws {ArchiveFault} that names the first frame that was changed, or the end that is missing
 */
export async function* openFrames(
  source: AsyncIterable<Buffer>,
  key: Buffer,
  associated: Buffer,
  offset: number,
): AsyncGenerator<Buffer> {
  const open = (frame: number, isLast: boolean, sealed: Buffer): Buffer => {
    const decipher = createDecipheriv('aes-256-gcm', key, nonceOf(frame, isLast), { authTagLength: tagBytes });
    decipher.setAAD(associated).setAuthTag(sealed.subarray(-tagBytes));
    return Buffer.concat([decipher.update(sealed.subarray(0, -tagBytes)), decipher.final()]);
  };
  const opens = (frame: number, isLast: boolean, sealed: Buffer): boolean => {
    try {
      return open(frame, isLast, sealed).length >= 0;
    } catch {
      return false;
    }
  };
  let frame = 0;
  for await (const { bytes, isLast } of inPieces(source, sealedFrameBytes)) {
    const position = `frame ${frame}, at byte ${offset + frame * sealedFrameBytes}`;
    if (bytes.length < tagBytes) throw new ArchiveFault('truncated', `it ends inside of ${position}`);
    try {
      yield open(frame, isLast, bytes);
    } catch (cause) {
      if (isLast && opens(frame, false, bytes))
        throw new ArchiveFault('truncated', `it ends after ${position}, which is not the last one`);
      const change = isLast ? 'was changed, or the file is cut inside of it' : 'was changed';
      throw new ArchiveFault('damaged', `${position}, ${change}`, { cause });
    }
    frame++;
  }
}

/**
 * Cuts a stream into pieces of equal size. The last one may be shorter, and is empty only if the stream is. While a
 * piece is used, nothing else is in memory but the chunk that follows it.
 */
export async function* inPieces(
  source: AsyncIterable<Buffer>,
  size: number,
): AsyncGenerator<{ bytes: Buffer; isLast: boolean }> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of source) {
    chunks.push(chunk);
    length += chunk.length;
    if (length <= size) continue;
    let rest = Buffer.concat(chunks.splice(0));
    // A piece is known not to be the last one when a byte follows it.
    for (; rest.length > size; rest = rest.subarray(size)) yield { bytes: rest.subarray(0, size), isLast: false };
    chunks.push(rest);
    length = rest.length;
  }
  yield { bytes: Buffer.concat(chunks), isLast: true };
}
