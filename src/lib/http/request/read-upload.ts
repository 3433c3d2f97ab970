import type { IncomingMessage } from 'node:http';
import { type Problem, problem } from '../../problems.ts';
import type { HttpContext } from '../../request-state.ts';
import { type Deadline, DeadlineError, withDeadline } from '../../runtime/deadline.ts';
import { askForBody, closing, isLabelledAscii, requirePlain } from './read-body.ts';

/** A body that is not JSON and is read in pieces. */
export interface UploadContract {
  /** The media type without parameters, such as `text/csv`. */
  readonly mediaType: string;
  /** Maximum size of the body in bytes. */
  readonly maxBytes: number;
  /** The advice to a client whose body is larger. */
  readonly tooLarge?: string;
  /** The advice to a client whose body has another encoding, after the sentence that says so. */
  readonly notUtf8?: string;
  /** A valid body, for the documentation. */
  readonly example?: string;
  /** Shortened in tests. */
  readonly minProgress?: typeof defaultProgress;
}

/**
 * Bytes that must arrive in so many milliseconds, unless the body ends: a seventh of what a
 * line of 1 Mbit/s carries. So 5 MB take 5 minutes at most, and a client that sends a byte now
 * and then is disconnected after 15 s.
 */
const defaultProgress = { bytes: 256 * 1024, ms: 15_000 };

/**
 * The number of bytes at the beginning of a body that are examined for NUL, which no text has.
 */
const examinedBytes = 1024;

const maxAscii = 0x7f;

/** The requests whose body this file reads. */
const uploads = new WeakSet<IncomingMessage>();

/**
 * True while the body of a request arrives under the time limit of `readUpload`, which replaces
 * that of the server.
 */
export function isUploading(request: IncomingMessage): boolean {
  return uploads.has(request) && !request.complete;
}

/**
 * Calls `onChunk` with each piece of a body in UTF-8, one after the other; the client waits
 * meanwhile. The time that it takes does not count for the deadline of the request. A body may
 * take as long as it makes progress.
 * @throws {Problem} `unsupported_media_type`, `payload_too_large`, `invalid_request`,
 *   `request_timeout`
 */
export async function readUpload(
  ctx: HttpContext,
  { mediaType, maxBytes, tooLarge, notUtf8, minProgress = defaultProgress }: UploadContract,
  onChunk: (chunk: Buffer) => Promise<void>,
): Promise<void> {
  const { headers } = ctx.req;
  requirePlain(headers, [mediaType]);
  const limit = {
    bytes: maxBytes,
    exceeded: () => payloadTooLarge(tooLarge),
    otherEncoding: (sentence: string) => otherEncoding(sentence, notUtf8),
  };
  if (Number(headers['content-length'] ?? 0) > maxBytes) throw limit.exceeded();

  askForBody(ctx);
  const { deadline } = ctx.state;
  uploads.add(ctx.req);

  try {
    await deadline.notCounting(() => read(ctx, limit, minProgress, onChunk));
  } catch (error) {
    ctx.res.shouldKeepAlive = false; // the server no longer limits the time of this body
    throw error;
  }
}

async function read(
  { req }: HttpContext,
  limit: {
    readonly bytes: number;
    readonly exceeded: () => Problem;
    readonly otherEncoding: (sentence: string) => Problem;
  },
  minProgress: typeof defaultProgress,
  onChunk: (chunk: Buffer) => Promise<void>,
): Promise<void> {
  const isAscii = isLabelledAscii(req.headers);
  const decoder = new TextDecoder('utf-8', { fatal: true });
  const decode = (chunk?: Buffer): void => {
    try {
      decoder.decode(chunk, { stream: chunk !== undefined });
    } catch {
      throw limit.otherEncoding('The body is not valid UTF-8.');
    }
  };

  const pieces = req.iterator({ destroyOnReturn: false });
  let bytes = 0;

  /**
   * Reads until enough bytes have arrived.
   * @returns false at the end of the body
   */
  const makeProgress = async (deadline: Deadline): Promise<boolean> => {
    const enough = bytes + minProgress.bytes;
    while (bytes < enough) {
      const chunk = await nextPiece(pieces);
      deadline.throwIfPassed(); // the request has been answered
      if (!chunk) return false;

      // UTF-16 without a byte order mark is valid UTF-8, with a NUL for every other letter.
      if (chunk.subarray(0, Math.max(0, examinedBytes - bytes)).includes(0)) {
        throw limit.otherEncoding('The body has a NUL byte, as a text in UTF-16 has.');
      }

      if (isAscii && chunk.some(byte => byte > maxAscii)) {
        throw limit.otherEncoding('The body is not in US-ASCII, as it says it is.');
      }

      bytes += chunk.length;
      if (bytes > limit.bytes) throw limit.exceeded();

      decode(chunk);
      await deadline.notCounting(() => onChunk(chunk));
    }
    return true;
  };

  try {
    while (await withDeadline(minProgress.ms, makeProgress));
  } catch (error) {
    throw error instanceof DeadlineError ? tooSlow(minProgress) : error;
  } finally {
    pieces.return?.().catch(() => {}); // after a time-out, the generator ends with the connection
  }

  decode();
}

async function nextPiece(pieces: AsyncIterator<Buffer>): Promise<Buffer | undefined> {
  try {
    const { done, value } = await pieces.next();
    return done ? undefined : value;
  } catch {
    throw problem('invalid_request', { detail: 'The body ended too early.', headers: closing });
  }
}

function payloadTooLarge(detail: string | undefined): Problem {
  return problem('payload_too_large', {
    ...(detail !== undefined && { detail }),
    headers: closing,
  });
}

function otherEncoding(sentence: string, hint: string | undefined): Problem {
  const detail = [sentence, hint].filter(Boolean).join(' ');
  return problem('invalid_request', { detail, headers: closing });
}

function tooSlow({ bytes, ms }: typeof defaultProgress) {
  const detail = `The body must bring ${bytes / 1024} KiB in every ${ms / 1_000} seconds.`;
  return problem('request_timeout', { detail, headers: closing });
}
