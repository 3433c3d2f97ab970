import { createHash } from 'node:crypto';

const maxTextLength = 4_096;

/** The representation of a response (RFC 9110 §3.2): encoded once, sent any number of times. */
export class Representation {
  /**
   * JSON, as UTF-8 bytes in memory of their own. Up to 4,096 characters it is a string, which Node sends in one write
   * with the head of the response; bytes would take a second write.
   */
  readonly body: Buffer | string;
  /** The strong `ETag` of the representation. */
  readonly tag: string;

  constructor(value: unknown) {
    const text = JSON.stringify(value);
    this.body = text.length <= maxTextLength ? text : ownBytes(text);
    this.tag = `"${createHash('sha256').update(text).digest('base64url').slice(0, 27)}"`;
  }

  /** Upper bound of the memory of the body, in bytes. */
  get size(): number {
    return typeof this.body === 'string' ? 2 * this.body.length : this.body.byteLength;
  }
}

/** Encodes text into a buffer outside Node's pool, because a cached slice would keep a whole pool buffer alive. */
function ownBytes(text: string): Buffer {
  const bytes = Buffer.allocUnsafeSlow(Buffer.byteLength(text));
  bytes.write(text);
  return bytes;
}
