import { createReadStream, createWriteStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { Pack } from 'tar-stream';

/** Adds a file with this text. */
export function addText(tar: Pack, name: string, text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    tar.entry({ name, mtime: new Date() }, text, error => (error ? reject(error) : resolve()));
  });
}

/**
 * Adds a file with the bytes of a stream. Writes them to a file in `scratch` first, because their number comes before
 * them in a tar file.
 * @returns the number of lines
 */
export async function addStream(tar: Pack, name: string, bytes: Readable, scratch: string): Promise<number> {
  const spool = join(scratch, 'entry');
  let lines = 0;
  const counted = async function* (): AsyncGenerator<Buffer> {
    for await (const chunk of bytes as AsyncIterable<Buffer>) {
      for (let at = chunk.indexOf(10); at >= 0; at = chunk.indexOf(10, at + 1)) lines++;
      yield chunk;
    }
  };
  await pipeline(counted, createWriteStream(spool, { mode: 0o600 }));
  const { size } = await stat(spool);
  const entry = tar.entry({ name, size, mtime: new Date() });
  await pipeline(createReadStream(spool), entry);
  return lines;
}
