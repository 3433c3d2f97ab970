import { pipeline, Readable } from 'node:stream';
import type { Context } from 'koa';
import { Problem } from '../errors.ts';
import type { ListExport } from './lists/list-export.ts';

/**
 * Sends a list as CSV, piece by piece as the client receives it. It has no `ETag`, and clients do not store it. An
 * error after the first byte closes the connection, by which the client knows that the file is incomplete.
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
  ctx.respond = false; // Koa would report each download that a client cancels as an error
  if (ctx.method === 'HEAD' || res.destroyed) {
    res.end();
    void pieces.return(undefined);
    return;
  }
  ctx.state.sentBytes = 0;
  const onSend = (piece: string): void => {
    ctx.state.sentBytes += Buffer.byteLength(piece);
  };
  pipeline(Readable.from(send(pieces, next, onSend)), res, error => {
    if (error && !isExpected(error)) ctx.app.emit('error', error, ctx);
  });
}

/** True when the client has left, or may no longer read the list. */
function isExpected(error: NodeJS.ErrnoException): boolean {
  return error.code === 'ERR_STREAM_PREMATURE_CLOSE' || error instanceof Problem;
}

async function* send(
  pieces: AsyncGenerator<string>,
  next: <T>(piece: () => Promise<T>) => Promise<T>,
  onSend: (piece: string) => void,
): AsyncGenerator<string> {
  try {
    for (;;) {
      const { done, value } = await next(() => pieces.next());
      if (done) return;
      onSend(value);
      yield value;
    }
  } finally {
    await pieces.return(undefined);
  }
}
