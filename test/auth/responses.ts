import type { ApiResponse } from '../support/client.ts';

/** Everything of an answer that tells cases apart: status, body and headers, without what is new with every answer. */
export function comparable({ status, headers, body }: ApiResponse): Record<string, unknown> {
  const others = Object.fromEntries([...headers].filter(([name]) => !/^(date|x-request-id|ratelimit-.*)$/.test(name)));
  return { status, headers: others, body: JSON.stringify({ ...body, traceId: typeof body?.traceId }) };
}
