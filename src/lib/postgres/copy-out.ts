import type pg from 'pg';
import { to as copyTo } from 'pg-copy-streams';
import { streamOf } from '../seams/stream-of.ts';

/**
 * Yields the rows that a statement `copy … to stdout` sends. The statement begins when the first
 * row is read. If they are not read to their end, the connection is broken off: the server would
 * go on to send, every later query would wait for the rest of the rows, and a process that waits
 * for nothing else would end in the middle of its work.
 */
export async function* copyOut(client: pg.Client, statement: string): AsyncGenerator<Buffer> {
  const rows = client.query(copyTo(statement));
  let isWhole = false;

  try {
    yield* rows;
    isWhole = true;
  } finally {
    if (!isWhole) {
      rows.on('error', () => {}); // of the connection that ends
      breakOff(client);
    }
  }
}

/** Closes a connection at once, whatever it waits for: a running query rejects. */
export function breakOff(client: pg.Client): void {
  streamOf(client).destroy();
}
