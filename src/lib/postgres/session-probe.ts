import type pg from 'pg';
import { timeLimits, withConnection } from './connection.ts';

const rounds = 3;

/**
 * A pooler between this process and the server gives a connection of the client to another
 * backend now and then.
 */
export class SharedSessionError extends Error {
  override name = 'SharedSessionError';
  readonly code = 'SHARED_SESSION';

  constructor() {
    super('a connection does not keep its session');
  }
}

/**
 * Verifies that a connection keeps one backend until it ends. Session locks, settings of a
 * session and notifications depend on that: through a pooler in transaction or statement mode
 * they would reach other clients.
 *
 *   1. A server names the backend of a connection when it accepts it. If the connection then
 *      runs on this backend, no pooler is in between.
 *   2. A pooler names another one. Then a second connection keeps a backend busy while the
 *      first one runs a further query. A pooler that shares backends gives the second
 *      connection the backend of the first, and the first another one. A pooler that uses its
 *      backends in turn gives the first connection another one with its next query. A pooler in
 *      session mode does neither.
 *
 * @throws {SharedSessionError} when the connection does not keep its backend
 */
export async function requireOwnSession(url: string): Promise<void> {
  await withConnection(url, first => requireOwnSessionOf(first, url), { kind: 'probe' });
}

/**
 * Verifies that an open connection keeps its backend, as `requireOwnSession` does.
 * @param url of the second connection
 */
export async function requireOwnSessionOf(first: pg.Client, url: string): Promise<void> {
  if ('processID' in first && (await backendOf(first)) === first.processID) return;

  const compare = async (second: pg.Client): Promise<void> => {
    const backends = new Set([await backendOf(first)]);
    for (let round = 0; round < rounds; round++) {
      backends.add(await backendOf(first)); // a pooler that uses its backends in turn
      await second.query('begin');
      // waits in vain if the pooler has no other backend
      backends.add(await backendOf(first).catch(() => undefined));
      await second.query('rollback');
    }
    if (backends.size > 1) throw new SharedSessionError();
  };

  await withConnection(url, compare, { kind: 'probe' });
}

/** The time limit is that of a probe, because the connection may be of another kind. */
async function backendOf(client: pg.Client): Promise<number | undefined> {
  const query = { text: 'select pg_backend_pid() as pid', query_timeout: timeLimits.probe.queryMs };
  const { rows } = await client.query<{ pid: number }>(query);
  return rows[0]?.pid;
}
