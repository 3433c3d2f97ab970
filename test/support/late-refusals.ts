import type { ApiResponse } from './client.ts';

/** The shortest of the limits below. */
const minLateMs = 2_000;

/**
 * Sends a request. Returns undefined for a 503 after 2 s or more: the machine was too busy for
 * one of the time limits of the service (the running requests of a tenant that moves, 2 s; a
 * statement, 8 s; a request, 10 s). What tests look for, a request that is refused although the
 * service could serve it, is refused at once.
 */
export async function unlessLate(
  send: () => Promise<ApiResponse>,
): Promise<ApiResponse | undefined> {
  const startedAt = performance.now();
  const response = await send();
  const isLate = response.status === 503 && performance.now() - startedAt >= minLateMs;
  return isLate ? undefined : response;
}
