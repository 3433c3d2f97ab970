import type { IncomingHttpHeaders } from 'node:http';
import { koaBody } from 'koa-body';
import { errorFact } from '../../narrow.ts';
import { Problem, problem } from '../../problems.ts';
import type { HttpContext } from '../../request-state.ts';
import { isExactNumber } from '../../runtime/exact-number.ts';

declare module '../../request-state.ts' {
  interface RequestState {
    /** The body, from when it is first asked for. */
    body: Promise<object> | undefined;
    /** The members of the body with a number that JavaScript cannot keep. */
    inexactFields: readonly MemberPath[] | undefined;
  }
}

const parsers = new Map<number, ReturnType<typeof koaBody>>();

/**
 * Maximum levels of lists and objects in a body: far more than any route reads, and far fewer
 * than would fill a stack.
 */
const maxLevels = 100;

/**
 * Reads the body as a JSON object: UTF-8 `application/json`, not compressed, at most `limit`
 * bytes. PATCH may also send it as a JSON merge patch. A request without a body gives an empty
 * object. A second call for the same request returns the same promise.
 * @throws {Problem} `unsupported_media_type`, `payload_too_large`, `malformed_json`,
 *   `request_timeout`
 */
export function readBody(ctx: HttpContext, limit: number): Promise<object> {
  ctx.state.body ??= read(ctx, limit);
  return ctx.state.body;
}

async function read(ctx: HttpContext, limit: number): Promise<object> {
  const { headers } = ctx.req;
  const length = Number(headers['content-length'] ?? 0);
  if (length === 0 && headers['transfer-encoding'] === undefined) return {};
  const isPatch = ctx.method === 'PATCH';
  if (isPatch) {
    requirePlain(headers, [json, mergePatch], { 'Accept-Patch': mergePatch }); // RFC 5789 §2.2
  } else {
    requirePlain(headers, [json]);
  }
  if (length > limit) throw problem('payload_too_large', { headers: closing });
  delete headers['content-encoding']; // the parser knows it in lower case only
  askForBody(ctx);

  const textOfBody = bodyDecoder(ctx);
  await ctx.state.deadline.notCounting(() => parse(ctx, limit));
  const text = textOfBody();
  if (isLabelledAscii(headers) && !isAscii(text)) {
    throw problem('malformed_json', { detail: 'The body is not in US-ASCII, as it says it is.' });
  }
  const body: unknown = 'body' in ctx.request ? ctx.request.body : undefined;
  if (typeof body !== 'object' || body === null || Array.isArray(body)) {
    throw problem('malformed_json', { detail: 'The body must be a JSON object.' });
  }
  if (isDeeper(body, maxLevels)) {
    throw problem('malformed_json', { detail: `The body must have at most ${maxLevels} levels.` });
  }
  ctx.state.inexactFields = inexactFields(text);
  return body;
}

/**
 * The pattern of a literal that may have more digits than a number keeps. Most bodies have
 * none.
 */
const longNumber = /[\d.]{16}/;
const inexact = Symbol('inexact');

/** The name of a member of a body, and the place in it if it is a list. */
export type MemberPath = readonly [name: string, index?: number];

/**
 * Returns the members of a body, and of its lists, that have a number which would be another one
 * when stored.
 */
function inexactFields(text: string): MemberPath[] {
  if (!longNumber.test(text)) return [];

  const mark: Reviver = (_, value, { source }) =>
    typeof value === 'number' && source !== undefined && !isExactNumber(source) ? inexact : value;
  const marked = (JSON.parse as (text: string, reviver: Reviver) => object)(text, mark);

  return Object.entries(marked).flatMap(([name, value]): MemberPath[] => {
    if (!Array.isArray(value)) return hasInexact(value) ? [[name]] : [];
    return value.flatMap((member, index) => (hasInexact(member) ? [[name, index] as const] : []));
  });
}

/** A reviver that gets the text of a value (ECMAScript 2026). */
type Reviver = (key: string, value: unknown, context: { source?: string }) => unknown;

function hasInexact(value: unknown): boolean {
  if (value === inexact) return true;
  return typeof value === 'object' && value !== null && Object.values(value).some(hasInexact);
}

/**
 * Sends `100 Continue`, for which a client waits with its body. Call it when the head of the
 * request gives no reason to refuse the body.
 */
export function askForBody({ req, res }: HttpContext): void {
  if (req.httpVersion === '1.1' && /\b100-continue\b/i.test(req.headers.expect ?? '')) {
    res.writeContinue();
  }
}

function isDeeper(value: unknown, levels: number): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return levels === 0 || Object.values(value).some(each => isDeeper(each, levels - 1));
}

/**
 * Ends the connection, because the server must not parse the unread rest of a body as the next
 * request.
 */
export const closing = { Connection: 'close' };

const json = 'application/json';
/** The media type of a JSON merge patch (RFC 7396). */
export const mergePatch = 'application/merge-patch+json';

/**
 * `utf8` is a label of UTF-8 too (WHATWG Encoding §4.2). A text in US-ASCII has the same bytes
 * in UTF-8 (RFC 3629 §1).
 */
const utf8Charset = /^charset\s*=\s*"?(utf-?8|us-ascii)"?$/;

/**
 * True for a body that is said to be in US-ASCII. A byte beyond it would have no meaning.
 */
export function isLabelledAscii({
  'content-type': contentType = '',
}: IncomingHttpHeaders): boolean {
  return /;\s*charset\s*=\s*"?us-ascii/i.test(contentType);
}

function isAscii(text: string): boolean {
  return Buffer.byteLength(text) === text.length;
}

/**
 * Requires the headers of a body that can be read. The parameters of the media type other than
 * `charset` are ignored: RFC 9110 §8.3.1 leaves their meaning to the type, and none of these
 * types has others.
 * @param accepted headers of the refusal
 * @throws {Problem} `unsupported_media_type` unless the body is of one of the media types, in
 *   UTF-8 and not compressed
 */
export function requirePlain(
  headers: IncomingHttpHeaders,
  mediaTypes: readonly string[],
  accepted = {},
): void {
  const { 'content-type': contentType = '' } = headers;
  const coding = headers['content-encoding'] || 'identity'; // an empty list has no coding
  const [type = '', ...parameters] = contentType
    .toLowerCase()
    .split(';')
    .map(part => part.trim());
  const isOfOtherCharset = parameters.some(
    each => /^charset\s*=/.test(each) && !utf8Charset.test(each),
  );
  if (mediaTypes.includes(type) && !isOfOtherCharset && coding.toLowerCase() === 'identity') return;

  const detail = `The body must be ${mediaTypes.join(' or ')} in UTF-8, not compressed.`;
  throw problem('unsupported_media_type', { detail, headers: { ...closing, ...accepted } });
}

async function parse(ctx: HttpContext, limit: number): Promise<void> {
  let parser = parsers.get(limit);
  if (!parser) {
    parser = koaBody({
      urlencoded: false,
      text: false,
      multipart: false,
      jsonLimit: limit,
      jsonTypes: [json, mergePatch],
    });
    parsers.set(limit, parser);
  }

  try {
    await Promise.race([parser(ctx, async () => {}), silenceOf(ctx)]);
  } catch (error) {
    if (error instanceof Problem) throw error;

    // The parser's errors contain the raw body, so no part of them may reach a log.
    const status = errorFact(error, 'status');
    const type = errorFact(error, 'type');
    if (status === 413) throw problem('payload_too_large', { headers: closing });
    if (type === 'request.aborted' || type === 'stream.not.readable') {
      throw problem('malformed_json', { detail: 'The body ended too early.', headers: closing });
    }
    if (error instanceof SyntaxError || error instanceof RangeError || status === 400) {
      throw problem('malformed_json');
    }
    throw new Error('reading the body failed');
  }
}

/**
 * Rejects when the client has sent nothing for as long as the server allows. The server then
 * leaves the connection open.
 */
function silenceOf({ req }: HttpContext): Promise<never> {
  return new Promise((_, reject) =>
    req.once('timeout', () => reject(problem('request_timeout', { headers: closing }))),
  );
}

/**
 * Decodes the body a second time, because the parser silently replaces bytes that are not UTF-8
 * by U+FFFD, and keeps no text.
 * @returns a function that returns the text at the end
 * @throws {Problem} `malformed_json` unless the body is UTF-8
 */
function bodyDecoder(ctx: HttpContext): () => string {
  const decoder = new TextDecoder('utf-8', { fatal: true });
  let text = '';
  let wellFormed = true;
  const decode = (chunk?: Buffer): void => {
    try {
      if (wellFormed) text += decoder.decode(chunk, { stream: chunk !== undefined });
    } catch {
      wellFormed = false;
    }
  };

  ctx.req.on('data', decode);

  return () => {
    decode();
    if (!wellFormed) throw problem('malformed_json', { detail: 'The body is not valid UTF-8.' });
    return text;
  };
}
