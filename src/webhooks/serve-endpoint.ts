import { hasCode } from '../errors.ts';
import type { Change } from '../events/change.ts';
import { type Cursor, cursorText, firstCursor, parseCursor } from '../events/change-cursor.ts';
import { type ChangePage, type Read, readChanges } from '../events/change-reader.ts';
import type { Statement } from '../postgres/statement.ts';
import { afterAttempt, type EndpointState } from './endpoint-state.ts';
import { failedSend, type SendResult, type WebhookSender } from './send-webhook.ts';
import { changeBody, gapPrefix, messageBody, messageIdOf, ofThisData, typeOf } from './webhook-message.ts';
import { type SecretSealer, type SigningSecrets, signedHeaders } from './webhook-secret.ts';
import {
  batchSize,
  maxMessages,
  type Progress,
  type StoredEndpoint,
  type StoredMessage,
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
  readonly sender: WebhookSender;
  /**
   * Sends in its turn: limits the messages that are sent at the same time. Those to receivers that fail or are slow take
   * not all turns.
   */
  readonly limit: <T>(isSlow: boolean, send: () => Promise<T>) => Promise<T>;
  readonly now: () => number;
  readonly random: () => number;
  /** Aborted when the process stops. */
  readonly stopping: AbortSignal;
  /** False when nothing more may be sent: the process stops, or another one may serve the tenant. */
  readonly mayGoOn: () => boolean;
  /** False while nothing of the tenant may be sent: it is suspended, or isolated. */
  readonly isServed: () => Promise<boolean>;
  readonly onAttempt: (result: SendResult) => void;
  readonly onDisabled: (endpoint: StoredEndpoint, reason: 'gone' | 'failing') => void;
}

/** Something to be sent. */
interface Item {
  readonly messageId: string;
  readonly body: string;
  /** Undefined: a message beside the feed. */
  readonly change?: Change;
  readonly message?: StoredMessage;
}

/** A receiver that takes longer is slow. */
const slowMs = 2_000;
/** The place of an endpoint that has nothing to send is stored again so often, for the retention of the feed. */
const maxPositionAgeMs = 24 * 3_600_000;

/**
 * Sends what an endpoint has not received, until nothing is left or an attempt fails. Reads a batch, sends it without a
 * connection, and stores the results: a process that is killed in between leaves the endpoint where it was, so that the
 * batch is sent again with the same ids. A strict endpoint has one change in a batch.
 * @returns true if changes follow that are not final yet
 */
export async function serveEndpoint(services: EndpointServices, stored: StoredEndpoint): Promise<boolean> {
  const { read, change, now, mayGoOn } = services;
  let endpoint: StoredEndpoint | undefined = stored;
  let ahead: Change[] = [];
  let isHeld = false;
  let isSlow = false;
  let isRead = false; // to its end: what follows wakes the tenant again
  while (mayGoOn() && endpoint) {
    const isResumed = endpoint.nextAttemptAt !== null && endpoint.nextAttemptAt <= now();
    if (isResumed) endpoint = { ...endpoint, nextAttemptAt: null };
    const messages =
      endpoint.dueMessages > 0
        ? ((await read(selectDueMessages(endpoint.id, now()))) as unknown as StoredMessage[])
        : [];
    let position = endpoint.position;
    let isEnd = true;
    const isStrict = endpoint.ordering === 'strict';
    const isFirst = isStrict && (messages.length > 0 || endpoint.gaps > 0); // a gap comes before the changes that follow it
    if (!isFirst && ahead.length === 0 && !isRead && mayReadFeed(endpoint)) {
      const page = await readOn(services, endpoint);
      if (page === 'gap') {
        endpoint = await reload(services, endpoint);
        continue;
      }
      isHeld = page.isHeld;
      isRead = page.isEnd && !page.isHeld;
      ahead = page.changes;
      if (ahead.length === 0) ({ position, isEnd } = { position: cursorText(page.last), isEnd: page.isEnd });
    }
    const sentChanges = isFirst ? [] : ahead.splice(0, isStrict ? 1 : batchSize);
    const items = [...messages.map(itemOfMessage), ...sentChanges.map(each => itemOfChange(each, endpoint!))];
    const isOld = now() - endpoint.positionAt > maxPositionAgeMs;
    if (items.length === 0 && isEnd && !isResumed && (position === endpoint.position || !isOld)) return isHeld;

    const results = await sendAll(services, endpoint, items, isSlow || endpoint.failures > 0);
    isSlow = results.some(result => result !== undefined && result.durationMs > slowMs);
    const isCutOff = results.includes(undefined); // nothing more may be sent
    if (isCutOff && results.every(result => result === undefined)) return isHeld;
    const progress = progressOf(services, { ...endpoint, position }, items, results);
    const [saved] = await change(saveProgress(endpoint, progress, now()));
    if (!saved) ahead = [];
    if (!saved || progress.state.nextAttemptAt) isRead = false;
    if (saved && progress.disable) services.onDisabled(endpoint, progress.disable);
    const hasMessages = messages.length > 0 || progress.queued.length > 0;
    if (!saved || hasMessages || progress.disable) endpoint = await reload(services, endpoint);
    else
      endpoint = {
        ...endpoint,
        ...progress.state,
        position: progress.position,
        positionAt: now(),
        version: saved.version as number,
      };
    if (isCutOff) return isHeld;
    if (endpoint?.nextAttemptAt) ahead = [];
  }
  return isHeld;
}

async function reload({ read, now }: EndpointServices, { id }: StoredEndpoint): Promise<StoredEndpoint | undefined> {
  const [endpoint] = await read(selectEndpoints(now(), id));
  return endpoint as unknown as StoredEndpoint | undefined;
}

function mayReadFeed({ ordering, nextAttemptAt, messages }: StoredEndpoint): boolean {
  return nextAttemptAt === null && (ordering === 'strict' || messages < maxMessages);
}

/**
 * Reads the changes after the place of an endpoint. If its data were put in place of others, or changes after its place
 * were removed, a message says so first, with two moments: what the endpoint has received of the time between them may
 * have been undone, or it has not received all of it.
 */
async function readOn(services: EndpointServices, endpoint: StoredEndpoint): Promise<ChangePage | 'gap'> {
  const { read } = services;
  const after = parseCursor(endpoint.position) ?? firstCursor;
  try {
    return await readFeed(read, endpoint, after, batchSize);
  } catch (error) {
    if (!hasCode(error, 'cursor_expired')) throw error;
  }
  const { last: end } = await readChanges(read, { after: 'now', limit: 1, filter: filterOf(endpoint) });
  const isKept = await readFeed(read, endpoint, ofThisData(after), 1).then(
    () => true,
    error => {
      if (hasCode(error, 'cursor_expired')) return false;
      throw error;
    },
  );
  const [lastChange] = isKept ? await read(selectLastChange(end.era)) : [];
  const place = isKept ? { ...after, madeIn: end.madeIn } : firstCursor;
  await storeGap(services, endpoint, place, (lastChange?.at as number | null | undefined) ?? endpoint.positionAt);
  return 'gap';
}

async function storeGap(services: EndpointServices, endpoint: StoredEndpoint, place: Cursor, from: number) {
  const at = services.now();
  const [From, To] = [from, at].map(each => new Date(each).toISOString()) as [string, string];
  const position = cursorText(place);
  const messageId = `${gapPrefix}${endpoint.id}_${position}_${endpoint.version}`;
  const queued = [{ messageId, body: messageBody('webhook.gap', To, { From, To }), failures: 0, at }];
  await services.change(saveProgress(endpoint, { ...unchanged(endpoint), position, queued }, at));
}

const filterOf = ({ resources, actions }: StoredEndpoint) => ({ resources, actions });

function readFeed(read: Read, endpoint: StoredEndpoint, after: Cursor, limit: number): Promise<ChangePage> {
  return readChanges(read, { after, limit, filter: filterOf(endpoint) });
}

const itemOfMessage = (message: StoredMessage): Item => ({ ...message, message });
const itemOfChange = (change: Change, { payload }: StoredEndpoint): Item => ({
  messageId: messageIdOf(change),
  body: changeBody(change, payload),
  change,
});

async function sendAll(
  services: EndpointServices,
  endpoint: StoredEndpoint,
  items: readonly Item[],
  isSlow: boolean,
): Promise<(SendResult | undefined)[]> {
  const { sender, limit, now, stopping, mayGoOn, isServed, onAttempt } = services;
  const secrets = openSecrets(services, endpoint);
  return Promise.all(
    items.map(({ messageId, body }) =>
      limit(isSlow, async () => {
        if (!(await isServed()) || !mayGoOn()) return undefined;
        if (!secrets) return failedSend('secret');
        const headers = signedHeaders(messageId, body, secrets, now());
        const result = await sender.send({ url: endpoint.url, headers, body }, stopping);
        if (result) onAttempt(result);
        return result;
      }),
    ),
  );
}

/** @returns undefined for an endpoint whose secret another tenant's key has sealed, as in a clone */
function openSecrets(
  { sealer }: EndpointServices,
  { id, secret, previous }: StoredEndpoint,
): SigningSecrets | undefined {
  const open = (sealed: Uint8Array): string | undefined => {
    try {
      return sealer.open(sealed, id);
    } catch {
      return undefined;
    }
  };
  const current = open(secret);
  // In a clone, the former secret cannot be opened after a rotation.
  return current === undefined ? undefined : { current, previous: previous ? open(previous) : undefined };
}

const unchanged = (endpoint: StoredEndpoint): Progress => ({
  ...{ state: endpoint, position: endpoint.position, disable: undefined, succeededAt: undefined },
  ...{ ended: [], retried: [], queued: [], attempts: [] },
});

/** What follows from the results of a batch. What has no result is sent again, and so are the changes after such a one. */
function progressOf(
  { now, random }: EndpointServices,
  endpoint: StoredEndpoint,
  items: readonly Item[],
  results: readonly (SendResult | undefined)[],
): Progress {
  const progress = unchanged(endpoint);
  let { position, disable, succeededAt } = progress;
  let state: EndpointState = endpoint;
  const firstCutOff = items.findIndex(({ change }, index) => change && !results[index]);
  items.forEach(({ messageId, body, change, message }, index) => {
    const result = results[index];
    if (!result || (change && firstCutOff >= 0 && index > firstCutOff)) return;
    const type = change?.Type ?? typeOf(body);
    const at = now();
    const sent = message
      ? {
          kind: 'message' as const,
          failures: message.failures,
          isRetried: type !== 'webhook.test',
          isOrdered: type === 'webhook.gap',
        }
      : { kind: 'change' as const };
    const step = afterAttempt(state, sent, result, { now: at, random: random() });
    state = step.endpoint;
    disable ??= step.disable;
    if (result.isSuccess) succeededAt = at;
    const { durationMs, status, error, response } = result;
    progress.attempts.push({ messageId, type, at, durationMs, status, error, response });
    if (change && step.sent.is !== 'stay') position = change.Id;
    if (step.sent.is === 'retry') {
      const { failures, at: retryAt } = step.sent;
      if (message) progress.retried.push({ id: message.id, failures, at: retryAt });
      else progress.queued.push({ messageId, body, failures, at: retryAt });
    } else if (message) progress.ended.push(message.id);
  });
  return { ...progress, state, position, disable, succeededAt };
}
