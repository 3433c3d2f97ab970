import { Readable } from 'node:stream';
import type { Context } from 'koa';
import type { ListExport } from './lists/list-export.ts';

/**
 * Sends a list as CSV, piece by piece as the client receives it. It has no `ETag`, and clients do not store it. An error
 * after the first byte closes the connection, by which the client knows that the file is incomplete.
 * @param next runs the read of each piece
 */
export function sendExport(
  ctx: Context,
  { name, pieces }: ListExport,
  next: <T>(piece: () => Promise<T>) => Promise<T>,
): void {
  const { res } = ctx;
  ctx.status = 200;
  res.setHeader('Content-Type', 'text/csv; charset=utf-8; header=present');
  res.setHeader('Content-Disposition', `attachment; filename="${name}.csv"`);
  ctx.vary('Accept');
  const stream = Readable.from(send(pieces, next));
  stream.on('error', () => res.destroy());
  ctx.body = stream;
}

async function* send(
  pieces: AsyncGenerator<string>,
  next: <T>(piece: () => Promise<T>) => Promise<T>,
): AsyncGenerator<string> {
  try {
    for (;;) {
      const { done, value } = await next(() => pieces.next());
      if (done) return;
      yield value;
    }
  } finally {
    await pieces.return(undefined);
  }
}
