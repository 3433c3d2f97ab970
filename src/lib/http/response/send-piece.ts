import type { HttpContext } from '../../request-state.ts';
import type { UnsentResponses } from './unsent-responses.ts';

declare module '../../request-state.ts' {
  interface RequestState {
    /** Bytes of the parts of a response that is sent in parts. */
    sentBytes: number | undefined;
  }
}

/**
 * Sends a piece of a response.
 * @returns a promise that resolves when the client has taken it, or has left
 */
export type SendPiece = (piece: string) => Promise<void>;

/**
 * Returns a function that sends the pieces of a response, and counts their bytes: for the
 * access log, and as unsent bytes.
 */
export function pieceSender({ res, state }: HttpContext, unsent: UnsentResponses): SendPiece {
  let sentBytes = 0;
  state.sentBytes = sentBytes;

  return function sendPiece(piece) {
    sentBytes += Buffer.byteLength(piece);
    state.sentBytes = sentBytes;
    return unsent.send(res, piece, state.context.tenant.guid);
  };
}
