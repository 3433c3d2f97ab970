import type { components } from './api.ts';
import { isJson } from './response-body.ts';

export type Problem = components['schemas']['Problem'];

/**
 * A response of the service that is an error (RFC 9457), or of a proxy before it, which has no
 * problem.
 */
export class ProblemError extends Error {
  readonly status: number;
  readonly problem: Problem | undefined;

  constructor(status: number, problem: Problem | undefined) {
    super(
      problem
        ? `${status} ${problem.code}: ${problem.detail ?? problem.title}`
        : `status ${status}, not from the service`,
    );
    this.name = 'ProblemError';
    this.status = status;
    this.problem = problem;
  }
}

/**
 * Returns the JSON body of a success.
 * @throws {ProblemError} for any other response, such as the page of a proxy
 */
export async function bodyOf<Body>(response: Response): Promise<Body> {
  if (!response.ok) throw new ProblemError(response.status, await problemOf(response));
  if (response.status === 204) return undefined as Body;

  if (!isJson(response)) throw new ProblemError(response.status, undefined);
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
