import type { SendResult } from './send-webhook.ts';

/** How an endpoint is doing. Times are in ms since 1970. */
export interface EndpointState {
  /** Failed attempts since the last success. */
  readonly failures: number;
  readonly failingSince: number | null;
  /**
   * When the next change is sent: the one at which a strict endpoint stands, or after a `Retry-After`; null: at once.
   */
  readonly nextAttemptAt: number | null;
  /** `strict`: a change is sent when those before it have arrived. `none`: the others go on while one is retried. */
  readonly ordering: 'strict' | 'none';
}

/** What decides which changes a webhook receives, and where it stands. */
export interface PlacedWebhook {
  readonly resources: readonly string[];
  readonly actions: readonly string[];
  readonly position: string;
}

/** An endpoint, as the dispatcher reads it. */
export interface StoredEndpoint extends EndpointState, PlacedWebhook {
  readonly id: number;
  readonly url: string;
  readonly payload: 'thin' | 'record';
  /** When the position last changed, in ms since 1970, as all times here. */
  readonly positionAt: number;
  readonly isEnabled: boolean;
  readonly disabledReason: 'gone' | 'failing' | 'operator' | null;
  readonly version: number;
  /** Messages beside the feed that are still to be sent, and how many of them are due. */
  readonly messages: number;
  readonly dueMessages: number;
  /** When something is sent again; null: nothing has failed. */
  readonly dueAt: number | null;
  /** What a poll sees of the tenant's database if nobody has inserted a row since. */
  readonly written: string;
  /** Sealed. */
  readonly secret: Buffer;
  readonly previous: Buffer | null;
}

/** A message that is sent beside the feed. */
export interface StoredMessage {
  readonly id: number;
  readonly messageId: string;
  readonly body: string;
  readonly failures: number;
}

/** What follows from an attempt. */
interface Step {
  readonly endpoint: EndpointState;
  readonly disable?: 'gone' | 'failing';
  /**
   * What becomes of what was sent. `done`: it needs no further attempt. `stay`: the endpoint keeps its place in the
   * feed. Else it is sent again as a message, while the endpoint goes on.
   */
  readonly sent: 'done' | 'stay' | { readonly at: number; readonly failures: number };
}

const minute = 60_000;
const hour = 60 * minute;
/** The waits before each retry, as Standard Webhooks has them. A strict endpoint goes on with the last one. */
export const retryDelaysMs: readonly number[] = [
  ...[5_000, 5 * minute, 30 * minute],
  ...[2, 5, 10, 14, 20, 24].map(hours => hours * hour),
];
const lastDelayMs = 24 * hour;
/** An endpoint is disabled by the first failure that is so long after the first one since the last success. */
export const maxFailingMs = 5 * 24 * hour;
/** Each wait is up to a tenth longer, so that endpoints that failed together are not retried together. */
const jitter = 0.1;

/**
 * @param message undefined for a change of the feed, or a gap in it
 * @param random from 0 to 1
 */
export function afterAttempt(
  endpoint: EndpointState,
  message: Pick<StoredMessage, 'failures'> | undefined,
  outcome: Pick<SendResult, 'status' | 'error' | 'retryAfterMs'>,
  { now, random }: { now: number; random: number },
): Step {
  const isStrict = endpoint.ordering === 'strict' && !message;
  const isOwn = isStrict || endpoint.ordering === 'none';
  if (outcome.error === null) {
    const nextAttemptAt = isStrict ? null : endpoint.nextAttemptAt; // the pause that another message has asked for
    const succeeded = { ...endpoint, failures: 0, failingSince: null, nextAttemptAt };
    return { endpoint: isOwn ? succeeded : endpoint, sent: 'done' };
  }
  if (outcome.status === 410)
    return { endpoint, disable: 'gone', sent: isStrict ? 'stay' : { at: now, failures: message?.failures ?? 0 } };

  const failures = (isStrict ? endpoint.failures : (message?.failures ?? 0)) + 1;
  const delay = (retryDelaysMs[failures - 1] ?? lastDelayMs) * (1 + jitter * random);
  const askedMs = Math.min(outcome.retryAfterMs ?? 0, lastDelayMs);
  const at = now + Math.max(delay, askedMs);
  const pausedUntil = Math.max(endpoint.nextAttemptAt ?? 0, askedMs && now + askedMs) || null;
  const failingSince = endpoint.failingSince ?? now;
  const nextAttemptAt = isStrict ? at : pausedUntil;
  return {
    endpoint: isOwn ? { ...endpoint, failures: endpoint.failures + 1, failingSince, nextAttemptAt } : endpoint,
    ...(isOwn && now - failingSince >= maxFailingMs && { disable: 'failing' as const }),
    sent: isStrict ? 'stay' : failures > retryDelaysMs.length ? 'done' : { at, failures },
  };
}
