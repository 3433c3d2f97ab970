import { OperatorError } from '../lib/log/operator-error.ts';

/** A command has met a schema that a later build than its own has made. It changes nothing. */
export class LaterBuildError extends OperatorError {
  /** @param what the beginning of the sentence: a tenant, a database or data */
  constructor(what: string, version: string) {
    super(`${what} is at version ${version}, of a later build: use that build`);
  }
}
