import type { HttpContext } from '../../request-state.ts';
import { bodyLimits } from '../route.ts';
import { readUpload } from './read-upload.ts';

const form = { mediaType: 'application/x-www-form-urlencoded', maxBytes: bodyLimits.auth };

/**
 * Reads the fields of an HTML form without files, of at most 8 KiB. Of a field that occurs
 * twice, the first one counts.
 * @throws {Problem} `unsupported_media_type`, `payload_too_large`, `invalid_request`,
 *   `request_timeout`
 */
export async function readForm(ctx: HttpContext): Promise<URLSearchParams> {
  let text = '';
  const decoder = new TextDecoder();
  await readUpload(ctx, form, async chunk => {
    text += decoder.decode(chunk, { stream: true });
  });
  return new URLSearchParams(text);
}
