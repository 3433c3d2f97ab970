import type { components } from './api.ts';
import { drop, isJson } from './response-body.ts';
import { retryAfterSeconds } from './retry-after.ts';

/** The problems of all statuses, each with the codes that it can have. */
type AnyProblem = components['schemas'][Extract<
  keyof components['schemas'],
  `Problem${number}${string}`
>];

/** A problem document (RFC 9457). */
export type Problem = Omit<AnyProblem, 'status' | 'code'> & {
  /** The status of the response. */
  status: number;
  /** What is wrong. A code keeps its meaning. */
  code: AnyProblem['code'];
};

/**
 * A response of the service that is an error (RFC 9457), or of a proxy before it, which has no
 * problem. The message is a sentence for a person: the detail of the problem, or its title.
 */
export class ProblemError extends Error {
  readonly status: number;
  readonly problem: Problem | undefined;
  /** The seconds after which the request may be sent again, if the response names them. */
  readonly retryAfter: number | undefined;

  constructor(status: number, problem: Problem | undefined, retryAfter?: number) {
    super(problem?.detail ?? problem?.title ?? `Status ${status}, not from the service`);
    this.name = 'ProblemError';
    this.status = status;
    this.problem = problem;
    this.retryAfter = retryAfter;
  }
}

/** Returns the error of a response, also of a page in place of a success. */
export async function problemErrorOf(response: Response): Promise<ProblemError> {
  const problem = await problemOf(response);
  drop(response);
  return new ProblemError(response.status, problem, retryAfterSeconds(response));
}

/**
 * Returns the JSON body of a success.
 * @throws {ProblemError} for any other response, such as the page of a proxy
 */
export async function bodyOf<Body>(response: Response): Promise<Body> {
  if (response.ok && response.status === 204) return undefined as Body;
  if (!response.ok || !isJson(response)) throw await problemErrorOf(response);

  return (await response.json()) as Body;
}

/** Returns the problem in a response, whose body stays readable; undefined if it has none. */
export async function problemOf(response: Response): Promise<Problem | undefined> {
  if (!response.headers.get('Content-Type')?.startsWith('application/problem+json')) {
    return undefined;
  }

  return (await response
    .clone()
    .json()
    .catch(() => undefined)) as Problem | undefined;
}
