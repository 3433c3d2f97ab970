import type { ApiResponse } from '../../support/client.ts';

/**
 * The parts of a response by which a client could tell two cases apart: all but what differs in
 * every response.
 */
export function comparable({ status, headers, body }: ApiResponse): Record<string, unknown> {
  const others = Object.fromEntries(
    [...headers].filter(([name]) => !/^(date|x-request-id|ratelimit(-.*)?)$/.test(name)),
  );
  return {
    status,
    headers: others,
    body: JSON.stringify({ ...body, traceId: typeof body?.traceId }),
  };
}
