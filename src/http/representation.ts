import { createHash } from 'node:crypto';

const maxTextLength = 4_096;

/** An answer as it leaves (RFC 9110 §3.2): made once, however often it is sent. */
export class Representation {
  /**
   * JSON: bytes in UTF-8, in memory of their own; what is small is text, which leaves together with the head of the answer,
   * where bytes would be a second piece.
   */
  readonly body: Buffer | string;
  /** Its strong `ETag`. */
  readonly tag: string;

  constructor(answer: unknown) {
    const text = JSON.stringify(answer);
    this.body = text.length <= maxTextLength ? text : ownBytes(text);
    this.tag = `"${createHash('sha256').update(text).digest('base64url').slice(0, 27)}"`;
  }

  /** Memory that it takes, in bytes, at the most. */
  get size(): number {
    return typeof this.body === 'string' ? 2 * this.body.length : this.body.byteLength;
  }
}

/** Not a part of a larger piece of memory, which it would hold as long as it is kept. */
function ownBytes(text: string): Buffer {
  const bytes = Buffer.allocUnsafeSlow(Buffer.byteLength(text));
  bytes.write(text);
  return bytes;
}
