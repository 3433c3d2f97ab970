import { setTimeout as sleep } from 'node:timers/promises';

/** The result of a request of a load, and the time since it was to be sent. */
export interface Served {
  /** The status of a response that succeeded; otherwise what went wrong. */
  readonly status: number | string;
  readonly ms: number;
}

/**
 * Sends requests at a fixed rate, however long their responses take, until `until` resolves.
 * @param send sends the request with this number, and returns its status, or what went wrong
 * @returns the responses in the order of the requests
 */
export async function sendSteadily(
  perSecond: number,
  until: Promise<unknown>,
  send: (number: number) => Promise<number | string>,
): Promise<Served[]> {
  const responses: Promise<Served>[] = [];
  let ended = false;
  const end = (): void => {
    ended = true;
  };
  until.then(end, end);
  const startedAt = performance.now();
  for (let number = 0; !ended; number++) {
    const plannedAt = startedAt + (number * 1_000) / perSecond;
    // A delay of 0 lets responses arrive also when the machine is too slow for the rate.
    await sleep(Math.max(0, plannedAt - performance.now()));
    const status = send(number).catch(error => String(error.cause ?? error));
    responses.push(status.then(result => ({ status: result, ms: performance.now() - plannedAt })));
  }
  await until;
  return Promise.all(responses);
}

/** Returns the numbers of requests and of each failure, and percentiles of the times in ms. */
export function summaryOf(served: readonly Served[]): Record<string, number> {
  const times = served.map(({ ms }) => ms).sort((a, b) => a - b);
  const at = (share: number): number =>
    Math.round((times[Math.floor((times.length - 1) * share)] ?? Number.NaN) * 10) / 10;
  const failures = served.flatMap(({ status }) => (typeof status === 'string' ? [status] : []));
  const counts = Object.fromEntries(
    Object.entries(Object.groupBy(failures, text => text)).map(countOf),
  );
  return {
    requests: times.length,
    failed: failures.length,
    ...counts,
    p50: at(0.5),
    p99: at(0.99),
    max: at(1),
  };
}

/** Returns how many requests failed. */
export function failuresOf(served: readonly Served[]): number {
  return served.filter(({ status }) => typeof status === 'string').length;
}

function countOf([text, all]: [string, unknown[] | undefined]): [string, number] {
  return [text, all?.length ?? 0];
}
