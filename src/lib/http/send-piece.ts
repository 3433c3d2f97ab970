import type { Context } from 'koa';
import type { UnsentResponses } from './unsent-responses.ts';

/**
 * Sends a piece of a response.
 * @returns a promise that resolves when the client has taken it, or has left
 */
export type SendPiece = (piece: string) => Promise<void>;

/**
 * Returns a function that sends the pieces of a response, and counts their bytes: for the
 * access log, and as unsent bytes.
 */
export function pieceSender({ res, state }: Context, unsent: UnsentResponses): SendPiece {
  state.sentBytes = 0;

  return function sendPiece(piece) {
    state.sentBytes += Buffer.byteLength(piece);
    return unsent.send(res, piece, state.tenant?.guid ?? '');
  };
}
