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
  const before = feedCursor === null ? undefined : parseCursor(feedCursor);
  // The check sees the change that was made on this connection, too.
  const [place] = await services.read(countAndCheck(before));
  if (place?.isKept === false) await services.change(beginGaps);

  return new Serving(services, wakes).run();
}

/** One run over the endpoints of a tenant. */
class Serving {
  readonly #services: EndpointServices;
  readonly #wakes: Wakes;
  readonly #active = new Map<number, Promise<void>>();
  /**
   * The active endpoints that may have read the feed before the last wake: they are served once
   * more.
   */
  #late = new Set<number>();
  readonly #failures: unknown[] = [];
  #endpoints: StoredEndpoint[] = [];
  #isOpen = false;
  /**
   * The time at which an endpoint that is not served now has something to send, by
   * `services.now`.
   */
  #nextDueAt = Number.POSITIVE_INFINITY;
  #written: string | undefined;
  #inserted = 0;
  #last: Cursor | undefined;

  constructor(services: EndpointServices, wakes: Wakes) {
    this.#services = services;
    this.#wakes = wakes;
  }

  async run(): Promise<Served> {
    const now = () => this.#services.now();

    for (let isDue = true; isDue || this.#active.size > 0; ) {
      if (isDue && this.#mayGoOn()) await this.#begin().catch(error => this.#failures.push(error));
      if (this.#active.size > 0) await this.#next();
      isDue =
        this.#wakes.take() ||
        (this.#active.size > 0 && this.#mayGoOn() && this.#nextDueAt <= now());
    }

    if (this.#failures.length > 0) throw this.#failures[0];
    return {
      endpoints: this.#endpoints,
      isOpen: this.#isOpen,
      written: this.#written === undefined ? null : writtenAfter(this.#written, this.#inserted),
      feedCursor: this.#last ? cursorText(this.#last) : null,
    };
  }

  /** Reads the endpoints, and serves those that are not active. */
  async #begin(): Promise<void> {
    this.#nextDueAt = Number.POSITIVE_INFINITY;
    this.#late = new Set(this.#active.keys());
    // The rows of active endpoints are out of date when they arrive, so they are not served.
    const known = new Set(this.#late);
    this.#endpoints = await this.#read();
    this.#written ??= this.#endpoints[0]?.written;

    for (const each of this.#endpoints.filter(({ isEnabled }) => isEnabled)) {
      if (each.dueAt !== null && each.dueAt > this.#services.now()) {
        this.#nextDueAt = Math.min(this.#nextDueAt, each.dueAt);
      }
      if (!known.has(each.id)) this.#active.set(each.id, this.#serve(each));
    }
  }

  async #serve(first: StoredEndpoint): Promise<void> {
    try {
      for (let endpoint: StoredEndpoint | undefined = first; endpoint; ) {
        this.#record(await serveEndpoint(this.#services, endpoint));
        const isServedAgain = this.#late.delete(first.id) && this.#mayGoOn();
        endpoint = isServedAgain ? (await this.#read(first.id))[0] : undefined;
      }
    } catch (error) {
      this.#failures.push(error);
    } finally {
      this.#active.delete(first.id); // in the turn of the check of `#late`: no wake comes between
    }
  }

  #record({ isOpen, inserted, last }: Awaited<ReturnType<typeof serveEndpoint>>): void {
    this.#isOpen ||= isOpen;
    if (isOpen) this.#nextDueAt = Math.min(this.#nextDueAt, this.#services.now() + openMs);
    this.#inserted += inserted;
    if (last && (!this.#last || compareCursors(this.#last, last) < 0)) this.#last = last;
  }

  /** Waits until an endpoint is served, woken or due. */
  async #next(): Promise<void> {
    const waited = new AbortController();
    const { signal } = waited;

    const dueInMs = Math.min(this.#nextDueAt - this.#services.now(), maxWaitMs);
    const due = sleep(dueInMs, undefined, { signal });
    await Promise.race([...this.#active.values(), this.#wakes.wait(), due]);
    waited.abort();
    await due.catch(() => {});
  }

  #mayGoOn(): boolean {
    return this.#services.mayGoOn() && this.#failures.length === 0;
  }

  /** @param id only this endpoint; undefined: all */
  #read(id?: number): Promise<StoredEndpoint[]> {
    return this.#services.read(selectEndpoints(this.#services.now(), id));
  }
}
