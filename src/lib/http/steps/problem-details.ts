import { STATUS_CODES } from 'node:http';
import type { Logger } from 'pino';
import { describeError } from '../../log/describe-error.ts';
import { databaseProblem } from '../../postgres/database-error.ts';
import { Problem, type ProblemCode, problem, problems } from '../../problems.ts';
import type { HttpContext, HttpMiddleware } from '../../request-state.ts';
import type { FieldError, FieldErrors } from '../../runtime/field-error.ts';
import { traceIdOf } from '../../tracing/trace-requests.ts';
import { closeGently } from '../response/close-gently.ts';
import { removeRateHeaders } from './rate-limit/rate-headers.ts';

declare module '../../request-state.ts' {
  interface RequestState {
    /** The code of the problem that is the response; undefined for another response. */
    problem: ProblemCode | undefined;
    /** The reason of a 401, for the access log. */
    reason: string | undefined;
    /** Returns the page that people see in place of a problem; undefined for other clients. */
    renderProblem: ((problem: Problem) => string) | undefined;
  }
}

/**
 * Renders every error as `application/problem+json` (RFC 9457). This is the only place in the
 * HTTP layer that renders errors. The client receives a code and a trace id; the log gets the
 * cause with the same trace id.
 */
export function problemDetails(log: Logger): HttpMiddleware {
  return async function catchProblem(ctx, next) {
    try {
      await next();
      if (ctx.status === 404 && ctx.body == null) throw problem('not_found');
    } catch (error) {
      const rendered =
        error instanceof Problem
          ? error
          : (databaseProblem(error) ?? problem('internal_error', { cause: error }));

      ctx.state.problem = rendered.code;
      ctx.state.reason = rendered.reason;

      if (rendered.status >= 500) {
        const { code, cause, message } = rendered;
        log.error(
          { traceId: ctx.state.traceId, trace_id: traceIdOf(ctx), code, err: describeError(cause) },
          message,
        );
      }

      renderProblem(ctx, rendered);

      const page = ctx.state.renderProblem;
      if (!page) return;

      ctx.type = 'text/html; charset=utf-8';
      ctx.body = page(rendered);
    }
  };
}

function renderProblem(ctx: HttpContext, rendered: Problem): void {
  const { code, status, detail, errors, references, members, headers } = rendered;
  ctx.status = status;
  ctx.set({ 'Cache-Control': 'no-store', ...headers });
  if (headers?.Connection === 'close' && !ctx.req.complete) {
    closeGently(ctx.res);
  }
  ctx.remove('ETag');
  if (status === 413) removeRateHeaders(ctx);
  ctx.type = 'application/problem+json';

  const seconds = ctx.res.getHeader('Retry-After');
  ctx.body = JSON.stringify({
    ...problemBody(code, ctx.state.traceId, detail, errors),
    references,
    ...members,
    retryAfter: seconds === undefined ? undefined : Number(seconds),
  });
}

/** Returns the members of a problem document (RFC 9457 §3.1). */
export function problemBody(
  code: ProblemCode,
  traceId: string,
  detail?: string,
  errors?: FieldErrors,
) {
  const { status, title } = problems[code];
  return {
    type: `/docs/errors#${code}`,
    title: title ?? STATUS_CODES[status],
    status,
    code,
    traceId,
    detail,
    errors: errors && mapFields(errors, ({ message }) => message),
    errorCodes:
      errors && mapFields(errors, ({ message, ...codeAndParameters }) => codeAndParameters),
  };
}

function mapFields<T>(errors: FieldErrors, map: (error: FieldError) => T): Record<string, T[]> {
  return Object.fromEntries(Object.entries(errors).map(([field, list]) => [field, list.map(map)]));
}
