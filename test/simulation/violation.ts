/** A broken invariant of a simulated run. */
export class Violation extends Error {
  override name = 'Violation';
}

/** @throws {Violation} */
export function violation(message: string): never {
  throw new Violation(message);
}
