import { problem } from '../../problems.ts';

/** 1 to 255 visible ASCII characters. */
const validKey = /^[!-~]{1,255}$/;

/**
 * Reads the header `Idempotency-Key` (draft-ietf-httpapi-idempotency-key-header). The draft
 * makes it a string of structured headers (RFC 8941 §3.3.3), in quotation marks; most clients
 * send it without.
 * @throws {Problem} `invalid_request`
 */
export function readIdempotencyKey(header: string): string {
  const [, quoted] = /^"((?:[^"\\]|\\["\\])*)"$/.exec(header) ?? [];
  const key = quoted === undefined ? header : quoted.replace(/\\(.)/g, '$1');
  if (!validKey.test(key)) {
    throw problem('invalid_request', {
      detail: 'Idempotency-Key must have 1 to 255 visible ASCII characters.',
    });
  }
  return key;
}
