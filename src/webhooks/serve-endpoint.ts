import { hasCode } from '../errors.ts';
import type { Change } from '../events/change.ts';
import { type Cursor, cursorText, firstCursor, parseCursor } from '../events/change-cursor.ts';
import { type ChangePage, type Read, readChanges } from '../events/change-reader.ts';
import type { Statement } from '../postgres/statement.ts';
import { type Item, progressOf, unchanged } from './endpoint-progress.ts';
import type { StoredEndpoint, StoredMessage } from './endpoint-state.ts';
import { failedSend, type SendResult, type WebhookRequest } from './send-webhook.ts';
import { changeBody, gapPrefix, messageBody, messageIdOf, ofThisData } from './webhook-message.ts';
import { type SecretSealer, type SigningSecrets, signedHeaders } from './webhook-secret.ts';
import {
  batchSize,
  maxMessages,
  saveProgress,
  selectDueMessages,
  selectEndpoints,
  selectLastChange,
} from './webhook-store.ts';

/** What serving one tenant uses. */
export interface EndpointServices {
  readonly read: Read;
  /** Makes a change in the tenant's database. */
  readonly change: (statement: Statement) => ReturnType<Read>;
  readonly sealer: SecretSealer;
  /**
   * Sends a message in its turn. Those to receivers that fail or are slow take not all turns.
   * @returns undefined when nothing more may be sent
   */
  readonly send: (isSlow: boolean, request: () => WebhookRequest) => Promise<SendResult | undefined>;
  readonly now: () => number;
  /** False when nothing more may be sent: the process stops, or another one may serve the tenant. */
  readonly mayGoOn: () => boolean;
  readonly onDisabled: (endpoint: StoredEndpoint, reason: 'gone' | 'failing') => void;
}

/** A receiver that takes longer is slow. */
const slowMs = 2_000;
/** The place of an endpoint that has nothing to send is stored again so often, for the retention of the feed. */
const maxPositionAgeMs = 24 * 3_600_000;

/**
 * Sends what an endpoint has not received, until nothing is left or an attempt fails.
 * @returns true if changes follow that are not final yet
 */
export async function serveEndpoint(services: EndpointServices, stored: StoredEndpoint): Promise<boolean> {
  const served = new ServedEndpoint(services, stored);
  while (services.mayGoOn() && (await served.sendBatch()));
  return served.isHeld;
}

/** An endpoint while it is served, as far as this process knows it. */
class ServedEndpoint {
  readonly #services: EndpointServices;
  /** Undefined: it was deleted or disabled. */
  #endpoint: StoredEndpoint | undefined;
  /** What follows its place, without the changes that were taken; undefined: it is to be read. */
  #page: ChangePage | undefined;
  #isSlow = false;

  constructor(services: EndpointServices, stored: StoredEndpoint) {
    this.#services = services;
    this.#endpoint = stored;
  }

  get isHeld(): boolean {
    return this.#page?.isHeld ?? false;
  }

  /**
   * Reads a batch, sends it without a connection, and stores the results: a process that is killed in between leaves the
   * endpoint where it was, so that the batch is sent again with the same ids. A strict endpoint has one change in a batch.
   * @returns false when nothing more can be sent now
   */
  async sendBatch(): Promise<boolean> {
    const { read, change, now, onDisabled } = this.#services;
    const stored = this.#endpoint;
    if (!stored) return false;
    const isResumed = stored.nextAttemptAt !== null && stored.nextAttemptAt <= now();
    const endpoint = isResumed ? { ...stored, nextAttemptAt: null } : stored;
    const messages = endpoint.dueMessages > 0 ? await read(selectDueMessages(endpoint.id, now())) : [];
    const changes = await this.#takeChanges(endpoint);
    if (!changes) return true; // the endpoint has got the message of a gap
    const items = [
      ...(messages as unknown as StoredMessage[]).map(message => ({ ...message, message })),
      ...changes.map(each => ({
        messageId: messageIdOf(each),
        body: changeBody(each, endpoint.payload),
        change: each,
      })),
    ];
    const position = this.#page && changes.length === 0 ? cursorText(this.#page.last) : endpoint.position;
    const isOld = position !== endpoint.position && now() - endpoint.positionAt > maxPositionAgeMs;
    if (items.length === 0 && !isResumed && this.#page?.isEnd !== false && !isOld) return false;

    const results = await this.#sendAll(endpoint, items);
    const isCutOff = results.includes(undefined);
    if (isCutOff && results.every(result => !result)) return false;
    this.#isSlow = results.some(result => result && result.durationMs > slowMs);
    const progress = progressOf({ ...endpoint, position }, items, results, now());
    const [saved] = await change(saveProgress(endpoint, progress, now()));
    if (saved && progress.disable) onDisabled(endpoint, progress.disable);
    if (isCutOff) return false;
    if (progress.state.nextAttemptAt !== null) this.#page = undefined; // it begins with what has failed
    if (!saved || progress.disable || messages.length + progress.queued.length > 0) await this.#reload(endpoint);
    else {
      const version = saved.version as number;
      this.#endpoint = { ...endpoint, ...progress.state, position: progress.position, positionAt: now(), version };
    }
    return true;
  }

  /** @returns the changes of the next batch; undefined when a gap comes first */
  async #takeChanges(endpoint: StoredEndpoint): Promise<Change[] | undefined> {
    const { nextAttemptAt, ordering, gaps, messages } = endpoint;
    const isStrict = ordering === 'strict';
    if (nextAttemptAt !== null || (isStrict ? gaps > 0 : messages >= maxMessages)) {
      this.#page = undefined;
      return [];
    }
    // What follows the end of the feed wakes the tenant again, unless it was there already, and is not final.
    if (!this.#page || (this.#page.changes.length === 0 && !(this.#page.isEnd && !this.#page.isHeld))) {
      this.#page = await readOn(this.#services, endpoint);
      if (!this.#page) return void (await this.#reload(endpoint));
    }
    return this.#page.changes.splice(0, isStrict ? 1 : batchSize);
  }

  /** Reads the endpoint again, which may have another filter now. */
  async #reload({ id }: StoredEndpoint): Promise<void> {
    this.#page = undefined;
    const [endpoint] = await this.#services.read(selectEndpoints(this.#services.now(), id));
    this.#endpoint = endpoint as unknown as StoredEndpoint | undefined;
  }

  async #sendAll(endpoint: StoredEndpoint, items: readonly Item[]): Promise<(SendResult | undefined)[]> {
    const { sealer, send, now } = this.#services;
    const secrets = openSecrets(sealer, endpoint);
    if (!secrets) return items.map(() => failedSend('secret'));
    const { url } = endpoint;
    return Promise.all(
      items.map(({ messageId, body }) =>
        send(this.#isSlow || endpoint.failures > 0, () => {
          return { url, body, headers: signedHeaders(messageId, body, secrets, now()) };
        }),
      ),
    );
  }
}

/**
 * Reads the changes after the place of an endpoint. If its data were put in place of others, or changes after its place
 * were removed, a message says so first, with two moments: what the endpoint has received of the time between them may
 * have been undone, or it has not received all of it.
 * @returns undefined when there is such a message
 */
async function readOn(services: EndpointServices, endpoint: StoredEndpoint): Promise<ChangePage | undefined> {
  const { read } = services;
  const after = parseCursor(endpoint.position) ?? firstCursor;
  const page = await readUnlessExpired(read, endpoint, after, batchSize);
  if (page) return page;
  const { last: end } = await readChanges(read, { after: 'now', limit: 1, filter: endpoint });
  const isKept = await readUnlessExpired(read, endpoint, ofThisData(after), 1);
  const [lastChange] = isKept ? await read(selectLastChange(end.era)) : [];
  const place = isKept ? { ...after, madeIn: end.madeIn } : firstCursor;
  await storeGap(services, endpoint, place, (lastChange?.at as number | null | undefined) ?? endpoint.positionAt);
  return undefined;
}

async function readUnlessExpired(read: Read, filter: StoredEndpoint, after: Cursor, limit: number) {
  try {
    return await readChanges(read, { after, limit, filter });
  } catch (error) {
    if (hasCode(error, 'cursor_expired')) return undefined;
    throw error;
  }
}

async function storeGap(services: EndpointServices, endpoint: StoredEndpoint, place: Cursor, from: number) {
  const at = services.now();
  const [From, To] = [from, at].map(each => new Date(each).toISOString()) as [string, string];
  const position = cursorText(place);
  const messageId = `${gapPrefix}${endpoint.id}_${position}_${endpoint.version}`;
  const queued = [{ messageId, body: messageBody('webhook.gap', To, { From, To }), failures: 0, at }];
  await services.change(saveProgress(endpoint, { ...unchanged(endpoint), position, queued }, at));
}

/** @returns undefined for an endpoint whose secret another tenant's key has sealed, as in a clone */
function openSecrets(sealer: SecretSealer, { id, secret, previous }: StoredEndpoint): SigningSecrets | undefined {
  const open = (sealed: Uint8Array | null): string | undefined => {
    try {
      return sealed ? sealer.open(sealed, id) : undefined;
    } catch {
      return undefined;
    }
  };
  const current = open(secret);
  // In a clone, the former secret cannot be opened after a rotation.
  return current === undefined ? undefined : { current, previous: open(previous) };
}
