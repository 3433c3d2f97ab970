import { hash } from 'node:crypto';

/**
 * The number of rows, and the sum (XOR) of the SHA-256 digests of their texts: the same for every order of the rows.
 */
export class RowDigest {
  rows = 0;
  readonly #sum = new Uint8Array(32);

  /** @param line a row as `copy` writes it in text format, with the line feed */
  add(line: Buffer): void {
    const digest = hash('sha256', line, 'buffer');
    for (let at = 0; at < 32; at++) this.#sum[at] = (this.#sum[at] ?? 0) ^ (digest[at] ?? 0);
    this.rows++;
  }

  equals(other: RowDigest): boolean {
    return this.rows === other.rows && Buffer.compare(this.#sum, other.#sum) === 0;
  }
}

/** Calls `onLine` with each line of a stream, its line feed included. A line feed in a value is written as `\n`. */
export async function forEachLine(source: AsyncIterable<Buffer>, onLine: (line: Buffer) => void): Promise<void> {
  let rest: Buffer = Buffer.alloc(0);
  for await (const chunk of source) {
    const bytes = rest.length > 0 ? Buffer.concat([rest, chunk]) : chunk;
    let from = 0;
    for (let end = bytes.indexOf(10); end >= 0; end = bytes.indexOf(10, from)) {
      onLine(bytes.subarray(from, end + 1));
      from = end + 1;
    }
    rest = bytes.subarray(from);
  }
}
