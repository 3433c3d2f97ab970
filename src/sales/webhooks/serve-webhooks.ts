import { setTimeout as sleep } from 'node:timers/promises';
import { type Cursor, compareCursors, cursorText, parseCursor } from '../events/change-cursor.ts';
import { writtenAfter } from '../events/write-counters.ts';
import type { StoredEndpoint } from './endpoint-state.ts';
import { type EndpointServices, serveEndpoint } from './serve-endpoint.ts';
import { beginGaps, countAndCheck, selectEndpoints } from './webhook-store.ts';

/**
 * The time after which an open endpoint is read again: nothing reports when changes become
 * final.
 */
export const openMs = 250;

/** Maximum wait, because a timer cannot wait without an end. */
const maxWaitMs = 60_000;

/** Wakes the task that serves a tenant, because there may be more to send. */
export class Wakes {
  #isWoken = false;
  #next = Promise.withResolvers<void>();

  wake(): void {
    this.#isWoken = true;
    this.#next.resolve();
  }

  /** Returns true once after `wake`. */
  take(): boolean {
    const was = this.#isWoken;
    this.#isWoken = false;
    this.#next = Promise.withResolvers();
    return was;
  }

  /** Resolves after a `wake` that was not taken yet. */
  wait(): Promise<void> {
    return this.#next.promise;
  }
}

interface Served {
  /** The endpoints, as they were read before each of them was served last. */
  readonly endpoints: readonly StoredEndpoint[];
  /** True if one of the endpoints is to be read again soon. */
  readonly isOpen: boolean;
  /**
   * The counters that a poll sees of the tenant's database if nobody but this process has
   * inserted a row since the endpoints were read first; null without endpoints. It is never
   * above the counters, so that no row of others is hidden. A long text in a TOAST table counts
   * as rows of its own: then a poll sees more, and the tenant is served once more.
   */
  readonly written: string | null;
  /** The last place of the feed that was read; null: none was. */
  readonly feedCursor: string | null;
}

/**
 * Serves the endpoints of a tenant side by side, until none has anything to send. One that is
 * woken meanwhile, or whose retry is due, goes on while another one waits for its receiver.
 * @param feedCursor the place of the feed when they were served last: if it expired, each has a
 *   gap
 * @throws when the tenant's database cannot be used; until the active sends have ended, the
 *   lease is kept
 */
export async function serveWebhooks(
  services: EndpointServices,
  wakes: Wakes,
  feedCursor: string | null,
): Promise<Served> {
  const active = new Map<number, Promise<void>>();
  /**
   * The active endpoints that may have read the feed before the last wake: they are served once
   * more.
   */
  let late = new Set<number>();
  const failures: unknown[] = [];
  let endpoints: StoredEndpoint[] = [];
  let isOpen = false;
  /**
   * The time at which an endpoint that is not served now has something to send, by
   * `services.now`.
   */
  let nextDueAt = Number.POSITIVE_INFINITY;
  let written: string | undefined;
  let inserted = 0;
  let last: Cursor | undefined;

  const mayGoOn = (): boolean => services.mayGoOn() && failures.length === 0;
  const read = async (id?: number) =>
    (await services.read(selectEndpoints(services.now(), id))) as unknown as StoredEndpoint[];

  const serve = async (first: StoredEndpoint): Promise<void> => {
    try {
      for (let endpoint: StoredEndpoint | undefined = first; endpoint; ) {
        const result = await serveEndpoint(services, endpoint);
        isOpen ||= result.isOpen;
        if (result.isOpen) nextDueAt = Math.min(nextDueAt, services.now() + openMs);
        inserted += result.inserted;
        if (result.last && (!last || compareCursors(last, result.last) < 0)) last = result.last;
        endpoint = late.delete(first.id) && mayGoOn() ? (await read(first.id))[0] : undefined;
      }
    } catch (error) {
      failures.push(error);
    } finally {
      active.delete(first.id); // in the turn of the check of `late`: no wake comes between
    }
  };

  const begin = async (): Promise<void> => {
    nextDueAt = Number.POSITIVE_INFINITY;
    late = new Set(active.keys());
    // The rows of active endpoints are out of date when they arrive, so they are not served.
    const known = new Set(late);
    endpoints = await read();
    written ??= endpoints[0]?.written;

    for (const each of endpoints.filter(({ isEnabled }) => isEnabled)) {
      if (each.dueAt !== null && each.dueAt > services.now()) {
        nextDueAt = Math.min(nextDueAt, each.dueAt);
      }
      if (!known.has(each.id)) active.set(each.id, serve(each));
    }
  };

  /** Waits until an endpoint is served, woken or due. */
  const next = async (): Promise<void> => {
    const waited = new AbortController();
    const { signal } = waited;

    const due = sleep(Math.min(nextDueAt - services.now(), maxWaitMs), undefined, { signal });
    await Promise.race([...active.values(), wakes.wait(), due]);
    waited.abort();
    await due.catch(() => {});
  };

  const before = feedCursor === null ? undefined : parseCursor(feedCursor);
  // The check sees the change that was made on this connection, too.
  const [place] = await services.read(countAndCheck(before));
  if (place?.isKept === false) await services.change(beginGaps);

  for (let isDue = true; isDue || active.size > 0; ) {
    if (isDue && mayGoOn()) await begin().catch(error => failures.push(error));
    if (active.size > 0) await next();
    isDue = wakes.take() || (active.size > 0 && mayGoOn() && nextDueAt <= services.now());
  }

  if (failures.length > 0) throw failures[0];
  return {
    endpoints,
    isOpen,
    written: written === undefined ? null : writtenAfter(written, inserted),
    feedCursor: last ? cursorText(last) : null,
  };
}
