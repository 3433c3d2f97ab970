import type { Attributes } from '@opentelemetry/api';

/** The result of a step that has ended. */
interface StepResult {
  readonly attributes: Attributes;
  readonly isFailed: boolean;
}

/**
 * A span of a request, or of an operation of the command line, that is being traced. It is
 * passed to the steps of the request with the deadline, never found by the asynchronous
 * context: a step that one request starts for another one, such as opening a connection, would
 * get the span of the wrong tenant. A request that is not traced has none, so its steps cost
 * nothing.
 */
export interface Trace {
  /** Runs a step in a span of its own. An error ends the span as failed, and is thrown. */
  step<T>(name: string, attributes: Attributes, run: (trace: Trace) => Promise<T>): Promise<T>;
  /** Adds a step that has ended. Times are those of `performance.now()`. */
  addStep(name: string, startedAt: number, endedAt: number, result?: StepResult): void;
}
