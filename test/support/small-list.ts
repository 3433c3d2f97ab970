import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';

/**
 * Requests a small list of a tenant without the response cache, at most 50 times a second.
 * @param token an access token of the tenant
 * @returns the times of the responses in ms, in ascending order
 */
export async function timeSmallList(url: string, token: string, ms: number): Promise<number[]> {
  const taken: number[] = [];
  for (const end = performance.now() + ms; performance.now() < end; await sleep(20)) {
    const startedAt = performance.now();
    const response = await fetch(`${url}/api/v1/OrderStatuses`, {
      headers: { Authorization: `Bearer ${token}`, 'Cache-Control': 'no-cache' },
    });
    await response.arrayBuffer();
    expect(response.status).to.equal(200);
    taken.push(performance.now() - startedAt);
  }

  return taken.sort((a, b) => a - b);
}

/** Returns the 95th percentile of times in ascending order. */
export function percentile95(times: readonly number[]): number {
  return times[Math.floor(times.length * 0.95)] ?? 0;
}
