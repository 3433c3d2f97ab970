import type { Answer } from '../support/client.ts';

/** Everything of an answer that tells cases apart: status, body and headers, without what is new with every answer. */
export function visible({ status, headers, body }: Answer): Record<string, unknown> {
  const { date: _date, 'x-request-id': _requestId, ...others } = Object.fromEntries(headers);
  return { status, headers: others, body: JSON.stringify({ ...body, traceId: typeof body?.traceId }) };
}
