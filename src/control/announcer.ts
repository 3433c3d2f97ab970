import { setTimeout as sleep } from 'node:timers/promises';
import { atMost } from '../lib/runtime/within.ts';
import { connectFirst } from '../lib/seams/first-in-queue.ts';
import { type ChangeTopic, changeChannel, changeTopics } from './change-topics.ts';
import type { ControlDatabase } from './database.ts';

/** Maximum time of the statement. */
const maxRunMs = 1_000;
const retryMs = 250;
/**
 * Maximum announcements that are kept. Above it, one announcement is kept for a whole tenant
 * instead of one for each of its resources.
 */
const maxKept = 10_000;
/** Maximum delay of a stop by a control database that does not respond. */
const maxStopMs = 1_000;

const text = `select pg_notify('${changeChannel}', payload) from unnest($1::text[]) as payload`;

/**
 * Notifies every process, through the change feed, that data with this key has changed; see
 * `Announcer`.
 */
export type Announce = (topic: ChangeTopic, key: string) => Promise<void>;

/** Announcements that are sent together. */
class Batch {
  readonly payloads = new Set<string>();
  readonly accepted = Promise.withResolvers<void>();
}

/**
 * Announces changes to every process, through the pool of the control database, first in its
 * queue. An announcement that the control database has not accepted is kept, and sent again
 * until it is.
 *
 * One batch is sent at a time, and later announcements belong to the next batch. They cannot be
 * part of a batch that is being sent: another process may receive that batch, and read data,
 * before their changes.
 */
export class Announcer {
  readonly #control: ControlDatabase;
  /** Announcements that are not being sent yet. */
  #next = new Batch();
  #sending: Promise<void> | undefined;
  #isStopped = false;

  constructor(control: ControlDatabase) {
    this.#control = control;
  }

  /**
   * Announces a change, after its commit.
   * @returns a promise that resolves when the control database has accepted the announcement:
   *   every listening process will receive it. It never rejects
   */
  readonly announce: Announce = (topic, key) => {
    this.#keep(`${topic}:${key}`);
    this.#sending ??= this.#sendAll();
    return this.#next.accepted.promise;
  };

  /** Sends the kept announcements, for a second at most, and announces nothing afterwards. */
  async stop(): Promise<void> {
    if (this.#sending !== undefined) await atMost(this.#sending, maxStopMs);
    this.#isStopped = true;
  }

  #keep(payload: string): void {
    const { payloads } = this.#next;
    const isOfResource = payload.startsWith(`${changeTopics.responses}:`);
    if (payloads.size < maxKept || !isOfResource) payloads.add(payload);
    else payloads.add(payload.split('/', 1)[0]!);
  }

  /** Never rejects. */
  async #sendAll(): Promise<void> {
    await Promise.resolve(); // announcements of the same turn are part of the first batch

    while (this.#next.payloads.size > 0 && !this.#isStopped) {
      const batch = this.#next;
      this.#next = new Batch();
      try {
        await this.#send([...batch.payloads]);
        batch.accepted.resolve();
      } catch {
        this.#putBack(batch);
        await sleep(retryMs, undefined, { ref: false });
      }
    }

    this.#sending = undefined;
  }

  /** Makes a failed batch the next one, together with the announcements since it was sent. */
  #putBack(failed: Batch): void {
    const later = this.#next;
    this.#next = failed;
    if (later.payloads.size === 0) return;

    for (const payload of later.payloads) this.#keep(payload);
    void failed.accepted.promise.then(later.accepted.resolve);
  }

  async #send(payloads: readonly string[]): Promise<void> {
    const pool = await this.#control.em.getConnection().getNativeClient();
    const client = await connectFirst(pool);
    try {
      const query = { name: 'announce', text, values: [payloads], query_timeout: maxRunMs };
      await client.query(query);
      client.release();
    } catch (error) {
      client.release(true);
      throw error;
    }
  }
}
