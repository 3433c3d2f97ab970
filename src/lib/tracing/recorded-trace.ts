import type { Attributes, Context, Span, Tracer } from '@opentelemetry/api';
import { errorFact } from '../narrow.ts';
import type { Trace } from './trace.ts';

/** The API of OpenTelemetry, which the service imports only when spans are exported. */
export type OpenTelemetry = typeof import('@opentelemetry/api');

/**
 * A recorded span, and the means to start spans below it; without a span, the means to begin a
 * trace.
 */
export class RecordedTrace implements Trace {
  readonly #api: OpenTelemetry;
  readonly #tracer: Tracer;
  readonly #context: Context;

  constructor(api: OpenTelemetry, tracer: Tracer, span?: Span) {
    this.#api = api;
    this.#tracer = tracer;
    this.#context = span ? api.trace.setSpan(api.ROOT_CONTEXT, span) : api.ROOT_CONTEXT;
  }

  async step<T>(
    name: string,
    attributes: Attributes,
    run: (trace: Trace) => Promise<T>,
  ): Promise<T> {
    const span = this.#tracer.startSpan(name, { attributes }, this.#context);
    try {
      return await run(new RecordedTrace(this.#api, this.#tracer, span));
    } catch (error) {
      // Not the message, which may contain values of the request.
      span.setAttribute('error.type', errorType(error));
      span.setStatus({ code: this.#api.SpanStatusCode.ERROR });
      throw error;
    } finally {
      span.end();
    }
  }

  addStep(...[name, startedAt, endedAt, result]: Parameters<Trace['addStep']>): void {
    const attributes = result?.attributes ?? {};
    const span = this.#tracer.startSpan(
      name,
      { startTime: unixTime(startedAt), attributes },
      this.#context,
    );
    if (result?.isFailed) span.setStatus({ code: this.#api.SpanStatusCode.ERROR });
    span.end(unixTime(endedAt));
  }
}

/** A code such as an SQLSTATE or that of a problem, or the class of the error. */
function errorType(error: unknown): string {
  return String(errorFact(error, 'code') ?? errorFact(error, 'name') ?? 'Error');
}

function unixTime(now: number): Date {
  return new Date(performance.timeOrigin + now);
}
