/** A broken invariant of a simulated run. */
export class Violation extends Error {
  override name = 'Violation';
}
