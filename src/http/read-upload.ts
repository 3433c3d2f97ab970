import type { Context } from 'koa';
import type { Deadline } from '../deadline.ts';
import { problem } from '../errors.ts';

/** A body that is not JSON and is read in pieces. */
export interface UploadContract {
  /** Without parameters, such as `text/csv`. */
  readonly mediaType: string;
  /** Maximum size of the body in bytes. */
  readonly maxBytes: number;
}

/** Ends the connection, because the server must not parse the unread rest of a body as the next request. */
const closing = { Connection: 'close' };

/**
 * Calls `onChunk` with each piece of a body in UTF-8, one after the other; the client waits meanwhile. The time that it
 * takes does not count for the deadline of the request.
 * @throws {Problem} `unsupported_media_type`, `payload_too_large`, `invalid_request`
 */
export async function readUpload(
  ctx: Context,
  { mediaType, maxBytes }: UploadContract,
  onChunk: (chunk: Buffer) => Promise<void>,
): Promise<void> {
  const { headers } = ctx.req;
  if (!isPlain(headers['content-type'], mediaType) || (headers['content-encoding'] ?? 'identity') !== 'identity')
    throw problem('unsupported_media_type', {
      detail: `The body must be ${mediaType} in UTF-8, not compressed.`,
      headers: closing,
    });
  if (Number(headers['content-length'] ?? 0) > maxBytes) throw problem('payload_too_large', { headers: closing });
  const deadline: Deadline = ctx.state.deadline;
  await deadline.notCounting(() => read(ctx, maxBytes, onChunk));
}

async function read(ctx: Context, maxBytes: number, onChunk: (chunk: Buffer) => Promise<void>): Promise<void> {
  const decoder = new TextDecoder('utf-8', { fatal: true });
  const decode = (chunk?: Buffer): void => {
    try {
      decoder.decode(chunk, { stream: chunk !== undefined });
    } catch {
      throw problem('invalid_request', { detail: 'The body is not valid UTF-8.', headers: closing });
    }
  };
  let bytes = 0;
  for await (const chunk of piecesOf(ctx)) {
    bytes += chunk.length;
    if (bytes > maxBytes) throw problem('payload_too_large', { headers: closing });
    decode(chunk);
    await onChunk(chunk);
  }
  decode();
}

async function* piecesOf({ req }: Context): AsyncGenerator<Buffer> {
  try {
    for await (const chunk of req.iterator({ destroyOnReturn: false })) yield chunk as Buffer;
  } catch {
    throw problem('invalid_request', { detail: 'The body ended too early.', headers: closing });
  }
}

function isPlain(contentType = '', mediaType: string): boolean {
  const [type = '', ...parameters] = contentType.split(';').map(part => part.trim().toLowerCase());
  const isKnown = (parameter: string) => /^charset\s*=\s*"?utf-8"?$|^header\s*=\s*"?present"?$/.test(parameter);
  return type === mediaType && parameters.every(isKnown);
}
