import { createHash, createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import type { Context } from 'koa';
import { OperatorError } from '../../log/operator-error.ts';
import type { Visitor } from './entrance.ts';

/** Makes and checks the tokens of forms. Each is for one visitor and one path. */
export interface FormTokens {
  make(ctx: Context, path: string): string;
  /** @throws {OperatorError} when the form is of another visitor, another page, or another console */
  require(ctx: Context, given: URLSearchParams): void;
}

export function createFormTokens(): FormTokens {
  const key = randomBytes(32);
  const digest = (visitor: Visitor, path: string): Buffer =>
    createHmac('sha256', key).update(`${visitor.session}\n${path}`).digest();
  return {
    make: (ctx, path) => digest(ctx.state.visitor, path).toString('base64url'),
    require: (ctx, given) => {
      const expected = digest(ctx.state.visitor, ctx.path);
      const token = Buffer.from(given.get('token') ?? '', 'base64url');
      if (token.length !== expected.length || !timingSafeEqual(token, expected))
        throw new OperatorError('The form is of an earlier console or of another page. Open it again', { usage: true });
    },
  };
}

const maxBytes = 100_000;

/**
 * Identifies what a form has sent. It is the same when a form is sent twice, as by two clicks, and another one when its
 * page was loaded again, or its values were changed. Undefined for a form without a `form`, its random id.
 */
export function submissionOf(given: URLSearchParams): string | undefined {
  return given.has('form') ? createHash('sha256').update(given.toString()).digest('base64url') : undefined;
}

/** Reads the form that a browser sends. @throws {OperatorError} when it is too large, or no form */
export async function readSubmission(ctx: Context): Promise<URLSearchParams> {
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
