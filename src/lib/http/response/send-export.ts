import type { ServerResponse } from 'node:http';
import { Problem } from '../../problems.ts';
import type { HttpContext } from '../../request-state.ts';
import type { ListExport, NextPiece } from '../request/list-parameters/list-export.ts';
import type { SendPiece } from './send-piece.ts';

/**
 * Sends a list as CSV, piece by piece: each is read when the client has taken the one before.
 * The response has no `ETag`, and clients do not store it. An error after the first byte closes
 * the connection, which shows the client that the file is incomplete.
 * @param run runs the read of each piece
 * @param send sends a piece
 */
export function sendExport(
  ctx: HttpContext,
  { name, next }: ListExport,
  run: <T>(piece: () => Promise<T>) => Promise<T>,
  send: SendPiece,
): void {
  const { res } = ctx;
  ctx.status = 200;
  res.setHeader('Content-Type', 'text/csv; charset=utf-8; header=present');
  res.setHeader('Content-Disposition', `attachment; filename="${name}.csv"`);
  ctx.vary('Accept');
  ctx.respond = false; // Koa would report each download that a client cancels as an error

  if (ctx.method === 'HEAD' || res.destroyed) {
    res.end();
    return;
  }

  sendPieces(res, () => run(next), send).catch((error: unknown) => {
    res.destroy();
    // A problem is expected: the caller has lost the right to read the list.
    if (!(error instanceof Problem)) ctx.app.emit('error', error, ctx);
  });
}

async function sendPieces(res: ServerResponse, next: NextPiece, send: SendPiece): Promise<void> {
  let isEnd = false;
  while (!isEnd && !res.destroyed) {
    isEnd = await sendNext(next, send);
  }
  if (isEnd) res.end();
}

/**
 * Sends the next piece. It is a chain of promises, because an async function would hold the
 * text beside the bytes that are sent.
 * @returns a promise of true when there is none
 */
function sendNext(next: NextPiece, send: SendPiece): Promise<boolean> {
  return next().then(piece => (piece === undefined ? true : send(piece).then(() => false)));
}
