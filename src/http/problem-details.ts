import { STATUS_CODES } from 'node:http';
import type { Context, Middleware } from 'koa';
import type { Logger } from 'pino';
import { Problem, type ProblemCode, problem, problems } from '../errors.ts';
import { describeError } from '../log.ts';
import { databaseProblem } from '../postgres/database-error.ts';

/**
 * Renders whatever goes wrong as `application/problem+json` (RFC 9457): the one place of the HTTP layer that catches.
 * The client gets a code and a trace id; the log gets the cause under the same trace id.
 */
export function problemDetails(log: Logger): Middleware {
  return async (ctx, next) => {
    try {
      await next();
      if (ctx.status === 404 && ctx.body == null) throw problem('not_found');
    } catch (error) {
      const found =
        error instanceof Problem ? error : (databaseProblem(error) ?? problem('internal_error', { cause: error }));
      ctx.state.problem = found.code;
      if (found.status >= 500)
        log.error({ traceId: ctx.state.traceId, code: found.code, err: describeError(found.cause) }, found.message);
      renderProblem(ctx, found);
    }
  };
}

function renderProblem(ctx: Context, { code, status, detail, errors, headers }: Problem): void {
  ctx.status = status;
  ctx.set({ 'Cache-Control': 'no-store', ...headers });
  ctx.remove('ETag');
  ctx.type = 'application/problem+json';
  ctx.body = JSON.stringify(problemBody(code, ctx.state.traceId, detail, errors));
}

/** The members of a problem document. */
export function problemBody(code: ProblemCode, traceId: string, detail?: string, errors?: Problem['errors']) {
  const { status, title } = problems[code];
  return { type: `/docs/errors#${code}`, title: title ?? STATUS_CODES[status], status, code, traceId, detail, errors };
}
