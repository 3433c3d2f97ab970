import pg from 'pg';

/**
 * PostgreSQL has answered a commit with `ROLLBACK`, because a statement of the transaction had
 * failed: nothing of the transaction is stored.
 */
export class RolledBackError extends Error {
  override name = 'RolledBackError';

  constructor() {
    super('the transaction had failed and was rolled back');
  }
}

/**
 * True when a commit may have taken effect although it was not confirmed: without a reply, or
 * when the server ended the session or cancelled the query (class 57) during the commit, which
 * it does only after the commit. Every other error of the server says that nothing was
 * committed.
 * @param isExecuted false when the statement before the commit, sent in the same packet, has
 *   failed itself
 */
export function mayBeCommitted(error: unknown, isExecuted = true): boolean {
  if (error instanceof RolledBackError) return false;

  return !(error instanceof pg.DatabaseError) || (isExecuted && /^57/.test(error.code ?? ''));
}
