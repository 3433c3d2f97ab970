import type { Context } from 'koa';
import { koaBody } from 'koa-body';
import { currentDeadline } from '../deadline.ts';
import { problem } from '../errors.ts';

const parsers = new Map<number, ReturnType<typeof koaBody>>();

/**
 * Reads a JSON object from the body: UTF-8 `application/json`, not compressed, at most `limit` bytes. No body at all
 * is an empty object. Asked again, it tells the same again.
 * @throws {Problem} `unsupported_media_type`, `payload_too_large`, `malformed_json`
 */
export function readBody(ctx: Context, limit: number): Promise<object> {
  ctx.state.body ??= read(ctx, limit);
  return ctx.state.body;
}

async function read(ctx: Context, limit: number): Promise<object> {
  const { headers } = ctx.req;
  const length = Number(headers['content-length'] ?? 0);
  if (length === 0 && headers['transfer-encoding'] === undefined) return {};
  if (
    !isPlainJson(headers['content-type']) ||
    (headers['content-encoding'] ?? 'identity').toLowerCase() !== 'identity'
  ) {
    throw problem('unsupported_media_type', { headers: closing });
  }
  if (length > limit) throw problem('payload_too_large', { headers: closing });

  const checkUtf8 = utf8Checker(ctx);
  const deadline = currentDeadline();
  const parsed = () => parse(ctx, limit);
  await (deadline ? deadline.notCounting(parsed) : parsed());
  checkUtf8();
  const body: unknown = (ctx.request as { body?: unknown }).body;
  if (typeof body !== 'object' || body === null || Array.isArray(body))
    throw problem('malformed_json', { detail: 'The body must be a JSON object.' });
  return body;
}

/** The rest of a body that was not read must not be taken for the next request on the same connection. */
const closing = { Connection: 'close' };

function isPlainJson(contentType = ''): boolean {
  return /^application\/json\s*(;\s*charset\s*=\s*"?utf-8"?\s*)?$/i.test(contentType.trim());
}

async function parse(ctx: Context, limit: number): Promise<void> {
  let parser = parsers.get(limit);
  if (!parser) {
    parser = koaBody({
      urlencoded: false,
      text: false,
      multipart: false,
      jsonLimit: limit,
      parsedMethods: ['POST', 'PUT'] as never,
    });
    parsers.set(limit, parser);
  }
  try {
    await parser(ctx, async () => {});
  } catch (error) {
    // The parser's own errors carry the raw body: nothing of them may reach a log.
    const { status, type } = error as { status?: number; type?: string };
    if (status === 413) throw problem('payload_too_large', { headers: closing });
    if (type === 'request.aborted' || type === 'stream.not.readable')
      throw problem('malformed_json', { detail: 'The body ended too early.', headers: closing });
    if (error instanceof SyntaxError || error instanceof RangeError || status === 400) throw problem('malformed_json');
    throw new Error('the body could not be read');
  }
}

/** Listens beside the parser, which would turn bytes that are not UTF-8 into U+FFFD without a word. */
function utf8Checker(ctx: Context): () => void {
  const decoder = new TextDecoder('utf-8', { fatal: true });
  let wellFormed = true;
  const decode = (chunk?: Buffer): void => {
    try {
      if (wellFormed) decoder.decode(chunk, { stream: chunk !== undefined });
    } catch {
      wellFormed = false;
    }
  };
  ctx.req.on('data', decode);
  return () => {
    decode();
    if (!wellFormed) throw problem('malformed_json', { detail: 'The body is not valid UTF-8.' });
  };
}
