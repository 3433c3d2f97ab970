import type { Socket } from 'node:net';
import type pg from 'pg';

/**
 * Returns the stream of a connection: the socket, or TLS above it. `pg` replaces the stream when
 * TLS begins, so whoever needs it before the login has ended reads it each time.
 */
export function streamOf({ connection }: Pick<pg.Client, 'connection'>): Socket {
  return connection.stream as Socket;
}
