import type { RowValues, RunStatement, Statement } from '../../lib/postgres/statement.ts';
import type { Change } from '../events/change.ts';
import { type Cursor, cursorText, eventIdOf } from '../events/change-cursor.ts';
import type { Reader } from '../events/change-sources.ts';
import { accessMark } from '../events/reader-cursor.ts';
import { type Item, progressOf } from './endpoint-progress.ts';
import type { DisabledReason, StoredEndpoint } from './endpoint-state.ts';
import { failedSend, type SendResult, type WebhookRequest } from './send-webhook.ts';
import { changeBody, messageBody, typeOf } from './webhook-message.ts';
import { type NextPage, readNext } from './webhook-places.ts';
import { mayRead } from './webhook-reader.ts';
import { openOwn, type SecretSealer, signedHeaders } from './webhook-secret.ts';
import { batchSize, saveProgress, selectDueMessages, selectEndpoints } from './webhook-store.ts';

/** The services with which one tenant is served. */
export interface EndpointServices {
  readonly read: RunStatement;
  /** Makes a change in the tenant's database. */
  readonly change: (statement: Statement) => Promise<RowValues[]>;
  readonly sealer: SecretSealer;
  /**
   * Returns the rights of a user of the tenant; undefined when the user is disabled or deleted.
   */
  readonly readerOf: (userId: number) => Promise<Reader | undefined>;
  /**
   * Sends a message in its turn. Messages to receivers that fail or are slow do not take all
   * turns.
   * @returns undefined when nothing more may be sent
   */
  readonly send: (
    isSlow: boolean,
    url: string,
    request: () => WebhookRequest,
  ) => Promise<SendResult | undefined>;
  readonly now: () => number;
  /**
   * False when nothing more may be sent: the process stops, or another one may serve the
   * tenant.
   */
  readonly mayGoOn: () => boolean;
  /**
   * Called after each page; `isHeld` is true if a transaction holds back changes after the
   * page.
   */
  readonly onPage: (isHeld: boolean) => void;
  readonly onDisabled: (endpoint: StoredEndpoint, reason: DisabledReason) => void;
}

/** The work that was done for an endpoint. */
export interface EndpointResult {
  /**
   * True if the endpoint is to be read again soon: changes follow that are not final yet, or
   * its state has changed.
   */
  isOpen: boolean;
  /** Rows that were inserted into the tenant's database. */
  inserted: number;
  /** The last place of the feed that was read; undefined: none was. */
  last: Cursor | undefined;
}

/** The response time above which a receiver counts as slow. */
const slowMs = 2_000;
/**
 * The age at which the place of an endpoint that has nothing to send is stored again, for the
 * retention of the feed.
 */
const maxPositionAgeMs = 24 * 3_600_000;

/**
 * Sends the messages that an endpoint has not received, until none is left or an attempt fails.
 * Reads a batch, sends it without a connection, and stores the results: a process that is
 * killed in between leaves the endpoint where it was, so that the batch is sent again with the
 * same ids.
 */
export async function serveEndpoint(
  services: EndpointServices,
  first: StoredEndpoint,
): Promise<EndpointResult> {
  const { read, change, now, mayGoOn, onPage, onDisabled } = services;
  const result: EndpointResult = { isOpen: false, inserted: 0, last: undefined };
  let isSlow = false;
  for (let endpoint: StoredEndpoint | undefined = first; endpoint?.isEnabled && mayGoOn(); ) {
    const { id, nextAttemptAt, positionAt, dueAt, failingSince }: StoredEndpoint = endpoint;
    const reader = await services.readerOf(endpoint.userId);
    if (!mayRead(reader, endpoint)) {
      await disable(services, endpoint, result);
      return result;
    }

    const messages = endpoint.dueMessages > 0 ? await read(selectDueMessages(id, now())) : [];
    const isWaiting = nextAttemptAt !== null && nextAttemptAt > now();
    const page = isWaiting ? undefined : await readNext(read, endpoint, batchSize);
    result.isOpen ||= page?.isHeld ?? false;
    if (page) onPage(page.isHeld);
    result.last = page?.last ?? result.last;
    const items = [
      ...messages.map(each => ({
        ...each,
        type: typeOf(each.body),
        message: each,
      })),
      ...(page ? itemsOf(page, endpoint, accessMark(reader), now()) : []),
    ];
    const isEmpty = page && !page.gap && page.changes.length === 0;
    const position: string = isEmpty ? cursorText(page.last) : endpoint.position;
    const isOld = position !== endpoint.position && now() - positionAt > maxPositionAgeMs;
    const isResumed = nextAttemptAt !== null && !isWaiting;
    if (items.length === 0 && !isResumed && page?.isEnd !== false && !isOld) return result;

    const results = await sendAll(services, endpoint, items, isSlow);
    const isCutOff = results.includes(undefined);
    if (isCutOff && results.every(each => !each)) return result;
    isSlow = results.some(each => each && each.durationMs > slowMs);
    const resumed = { ...endpoint, position, nextAttemptAt: isWaiting ? nextAttemptAt : null };
    const progress = progressOf(resumed, items, results, now());
    const [saved] = await change(saveProgress(endpoint, progress, now()));
    const isSound =
      dueAt === null && failingSince === null && results.every(each => each?.error === null);
    result.isOpen ||= !saved || !isSound;
    if (saved) result.inserted += progress.queued.length + progress.attempts.length;
    if (saved?.isToNotify && progress.disable) onDisabled(endpoint, progress.disable);
    if (isCutOff) return result;
    if (saved && messages.length < batchSize && page?.isEnd !== false) return result;
    // The endpoint may have been changed meanwhile.
    [endpoint] = await read(selectEndpoints(now(), id));
  }
  return result;
}

function itemsOf(
  { gap, changes, last }: NextPage,
  endpoint: StoredEndpoint,
  access: string,
  now: number,
): Item[] {
  if (!gap) return changes.map(each => itemOf(each, access, endpoint.payload));

  const From = new Date(gap.lastChangeAt ?? endpoint.positionAt).toISOString();
  const To = new Date(now).toISOString();
  const type = 'webhook.gap';
  const messageId = `gap_${endpoint.id}_${endpoint.position}_${gap.madeIn.toString(36)}`;

  return [
    {
      messageId,
      type,
      body: messageBody(type, To, { From, To }),
      position: cursorText(last),
    },
  ];
}

function itemOf(change: Change, access: string, payload: 'thin' | 'record'): Item {
  return {
    messageId: eventIdOf(change.cursor),
    type: change.Type,
    body: changeBody(change, access, payload),
    position: cursorText(change.cursor),
  };
}

/** Disables an endpoint whose user may not read what it sends. It keeps its place. */
async function disable(
  services: EndpointServices,
  endpoint: StoredEndpoint,
  result: EndpointResult,
): Promise<void> {
  const { change, now, onDisabled } = services;
  const progress = { ...progressOf(endpoint, [], [], now()), disable: 'rights' as const };
  const [saved] = await change(saveProgress(endpoint, progress, now()));

  result.isOpen ||= !saved;
  if (saved?.isToNotify) onDisabled(endpoint, 'rights');
}

/**
 * @returns the results of the attempts: those of changes up to the first change that has not
 *   arrived
 */
async function sendAll(
  { sealer, send, now }: EndpointServices,
  endpoint: StoredEndpoint,
  items: readonly Item[],
  isSlow: boolean,
): Promise<(SendResult | undefined)[]> {
  const { url, failures } = endpoint;
  const secrets = openSecrets(sealer, endpoint);

  const sendItem = async ({ messageId, body }: Item): Promise<SendResult | undefined> => {
    if (!secrets) return failedSend('secret');
    const request = () => ({ url, body, headers: signedHeaders(messageId, body, secrets, now()) });
    return send(isSlow || failures > 0, url, request);
  };

  const [messages, changes] = [
    items.filter(({ message }) => message),
    items.filter(({ message }) => !message),
  ];

  const inOrder = async (): Promise<(SendResult | undefined)[]> => {
    const results: (SendResult | undefined)[] = [];
    for (const each of changes) {
      if (results.every(result => result?.error === null)) results.push(await sendItem(each));
    }
    return results;
  };

  const [ofMessages, ofChanges] = await Promise.all([
    Promise.all(messages.map(sendItem)),
    inOrder(),
  ]);

  return [...ofMessages, ...ofChanges];
}

/**
 * @returns undefined for an endpoint whose secret another tenant's key has sealed, as in a
 *   clone
 */
function openSecrets(
  sealer: SecretSealer,
  { id, secret, previous }: StoredEndpoint,
): string[] | undefined {
  const current = openOwn(sealer, secret, id);
  if (current === undefined) return undefined;

  // In a clone, the former secrets cannot be opened after a rotation.
  const former = previous.map(sealed => openOwn(sealer, sealed, id));
  return [current, ...former.filter(each => each !== undefined)];
}
