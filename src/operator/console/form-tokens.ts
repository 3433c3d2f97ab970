import { createHash, createHmac, randomBytes } from 'node:crypto';
import type { Context } from 'koa';
import { OperatorError } from '../../log/operator-error.ts';
import { isEqual } from './entrance.ts';

export type FormTokens = ReturnType<typeof createFormTokens>;

/** Makes and checks the tokens of forms. Each is for one visitor and one path. */
export function createFormTokens() {
  const key = randomBytes(32);
  const make = (ctx: Context, path: string): string =>
    createHmac('sha256', key).update(`${ctx.state.visitor.session}\n${path}`).digest('base64url');
  return { make, readSubmission };

  /**
   * Reads the form that a browser sends.
   * @throws {OperatorError} when it is too large, or of another visitor, another page, or another console
   */
  async function readSubmission(ctx: Context): Promise<URLSearchParams> {
    const given = await readBody(ctx);
    if (!isEqual(given.get('token') ?? '', make(ctx, ctx.path)))
      throw new OperatorError('The form is of an earlier console or of another page. Open it again', { usage: true });
    return given;
  }
}

const maxBytes = 100_000;

/**
 * Identifies what a form has sent. It is the same when a form is sent twice, as by two clicks, and another one when its
 * page was loaded again, or its values were changed. Undefined for a form without a `form`, its random id.
 */
export function submissionOf(given: URLSearchParams): string | undefined {
  return given.has('form') ? createHash('sha256').update(given.toString()).digest('base64url') : undefined;
}

async function readBody(ctx: Context): Promise<URLSearchParams> {
  if (!ctx.is('application/x-www-form-urlencoded')) throw new OperatorError('That is no form', { usage: true });
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of ctx.req) {
    bytes += chunk.length;
    if (bytes > maxBytes) throw new OperatorError('The form is too large', { usage: true });
    chunks.push(chunk);
  }
  return new URLSearchParams(Buffer.concat(chunks).toString('utf8'));
}
