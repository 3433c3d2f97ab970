import { createHash } from 'node:crypto';

/** An answer as it leaves (RFC 9110 §3.2): made once, however often it is sent. */
export class Representation {
  /** JSON in UTF-8. */
  readonly bytes: Buffer;
  /** Its strong `ETag`. */
  readonly tag: string;

  constructor(answer: unknown) {
    const json = JSON.stringify(answer);
    // Memory of its own: a piece of the pool that small buffers share would keep 8 KB of it for as long as it is kept.
    this.bytes = Buffer.allocUnsafeSlow(Buffer.byteLength(json));
    this.bytes.write(json);
    this.tag = `"${createHash('sha256').update(this.bytes).digest('base64url').slice(0, 27)}"`;
  }
}
