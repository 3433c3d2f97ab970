import type { SendResult } from './send-webhook.ts';

/** The state of an endpoint. Times are in ms since 1970. */
export interface EndpointState {
  /** Failed attempts since the last success. */
  readonly failures: number;
  readonly failingSince: number | null;
  /** The time at which the change at the endpoint's place is sent again; null: at once. */
  readonly nextAttemptAt: number | null;
}

/** The fields that decide which changes a webhook receives, and its place in the feed. */
export interface PlacedWebhook {
  readonly resources: readonly string[];
  readonly actions: readonly string[];
  readonly position: string;
}

/** The reason why the service disables an endpoint. */
export type DisabledReason = 'gone' | 'failing' | 'rights';

/** An endpoint, as the dispatcher reads it. */
export interface StoredEndpoint extends EndpointState, PlacedWebhook {
  readonly id: number;
  readonly url: string;
  readonly payload: 'thin' | 'record';
  /** The time of the last change of the position, in ms since 1970. */
  readonly positionAt: number;
  readonly isEnabled: boolean;
  readonly disabledReason: DisabledReason | 'operator' | null;
  /** The user whose rights decide which changes the endpoint sends. */
  readonly userId: number;
  readonly version: number;
  /** Messages beside the feed that are due. */
  readonly dueMessages: number;
  /** The time at which a change or message is sent again; null: none has failed. */
  readonly dueAt: number | null;
  /**
   * The counters that a poll sees of the tenant's database if nobody has inserted a row since.
   */
  readonly written: string;
  /** Sealed. */
  readonly secret: Buffer;
  /** The former secrets that still sign, the newest first. Sealed. */
  readonly previous: readonly Buffer[];
}

/** A message that is sent beside the feed. */
export interface StoredMessage {
  readonly id: number;
  readonly messageId: string;
  readonly body: string;
  readonly failures: number;
}

/** The consequences of an attempt. */
interface Step {
  readonly endpoint: EndpointState;
  readonly disable?: 'gone' | 'failing';
  /**
   * The outcome for the message that was sent. `done`: it needs no further attempt. `stay`: the
   * message is a change, and the endpoint keeps its place in the feed. Otherwise the message is
   * beside the feed, and is sent again while the endpoint goes on.
   */
  readonly sent: 'done' | 'stay' | { readonly at: number; readonly failures: number };
}

const minute = 60_000;
const hour = 60 * minute;
/**
 * The waits before each retry, as Standard Webhooks has them. A change goes on with the last
 * one.
 */
export const retryDelaysMs: readonly number[] = [
  5_000,
  5 * minute,
  30 * minute,
  ...[2, 5, 10, 14, 20, 24].map(hours => hours * hour),
];
const lastDelayMs = 24 * hour;
/**
 * The time for which an endpoint may fail: the first failure that is so long after the first
 * one since the last success disables it.
 */
export const maxFailingMs = 5 * 24 * hour;
/**
 * Each wait is up to a tenth longer, so that endpoints that failed together are not retried
 * together.
 */
const jitter = 0.1;

type Outcome = Pick<SendResult, 'status' | 'error' | 'retryAfterMs'>;

/**
 * The end of an attempt, and a random number from 0 to 1: the part of the jitter by which the
 * next wait is longer.
 */
interface Times {
  readonly now: number;
  readonly random: number;
}

/**
 * Returns the consequences of an attempt to send a change of the feed or a gap in it, or a
 * message beside the feed.
 * @param message undefined for a change or a gap
 */
export function afterAttempt(
  endpoint: EndpointState,
  message: Pick<StoredMessage, 'failures'> | undefined,
  outcome: Outcome,
  times: Times,
): Step {
  return message
    ? afterMessage(endpoint, message, outcome, times)
    : afterChange(endpoint, outcome, times);
}

/**
 * A change that has not arrived keeps the endpoint in its place, so that changes arrive in
 * their order.
 */
function afterChange(endpoint: EndpointState, outcome: Outcome, times: Times): Step {
  if (outcome.error === null) {
    return { endpoint: { failures: 0, failingSince: null, nextAttemptAt: null }, sent: 'done' };
  }

  if (outcome.status === 410) return { endpoint, disable: 'gone', sent: 'stay' };

  const failures = endpoint.failures + 1;
  const failingSince = endpoint.failingSince ?? times.now;
  const state = { failures, failingSince, nextAttemptAt: retryAt(failures, outcome, times) };
  const isDisabled = times.now - failingSince >= maxFailingMs;

  return { endpoint: state, sent: 'stay', ...(isDisabled && { disable: 'failing' as const }) };
}

/**
 * A message does not hold the feed: it is tried again by itself, and given up after the last
 * retry.
 */
function afterMessage(
  endpoint: EndpointState,
  message: Pick<StoredMessage, 'failures'>,
  outcome: Outcome,
  times: Times,
): Step {
  if (outcome.error === null) return { endpoint, sent: 'done' };

  if (outcome.status === 410) {
    return { endpoint, disable: 'gone', sent: { at: times.now, failures: message.failures } };
  }

  const failures = message.failures + 1;
  if (failures > retryDelaysMs.length) return { endpoint, sent: 'done' };

  return { endpoint, sent: { at: retryAt(failures, outcome, times), failures } };
}

function retryAt(failures: number, { retryAfterMs }: Outcome, { now, random }: Times): number {
  const delay = (retryDelaysMs[failures - 1] ?? lastDelayMs) * (1 + jitter * random);
  const asked = Math.min(retryAfterMs ?? 0, lastDelayMs);

  return now + Math.max(delay, asked);
}
