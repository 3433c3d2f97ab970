import {
  afterAttempt,
  type DisabledReason,
  type EndpointState,
  type StoredEndpoint,
  type StoredMessage,
} from './endpoint-state.ts';
import type { SendResult } from './send-webhook.ts';

/** A change, a gap or a message that is to be sent. */
export interface Item {
  readonly messageId: string;
  readonly type: string;
  readonly body: string;
  /** The place after the item in the feed; undefined for a message beside the feed. */
  readonly position?: string;
  readonly message?: StoredMessage;
}

/** A message to be stored, and when it is sent. */
export interface NewMessage extends Omit<StoredMessage, 'id'> {
  readonly at: number;
}

/** An attempt, which is logged. */
interface Attempt extends SendResult {
  readonly messageId: string;
  readonly type: string;
  readonly at: number;
}

/** The work of a process for an endpoint since it read the endpoint. */
export interface EndpointProgress {
  state: EndpointState;
  position: string;
  disable: DisabledReason | undefined;
  succeededAt: number | undefined;
  /** Ids of the messages that were sent. Those that are sent again are queued anew. */
  readonly sent: number[];
  readonly queued: NewMessage[];
  readonly attempts: Attempt[];
}

/**
 * Applies the results of a batch. A message without a result is sent again, and so are the
 * changes after it.
 */
export function progressOf(
  endpoint: StoredEndpoint,
  items: readonly Item[],
  results: readonly (SendResult | undefined)[],
  at: number,
): EndpointProgress {
  const progress: EndpointProgress = {
    state: endpoint,
    position: endpoint.position,
    disable: undefined,
    succeededAt: undefined,
    sent: [],
    queued: [],
    attempts: [],
  };
  let isCutOff = false;

  for (const [index, { messageId, type, body, position, message }] of items.entries()) {
    const result = results[index];
    isCutOff ||= !message && !result;
    if (!result || (!message && isCutOff)) continue;

    const times = { now: at, random: Math.random() };
    const { endpoint: state, disable, sent } = afterAttempt(progress.state, message, result, times);
    progress.state = state;
    progress.disable ??= disable;

    if (result.error === null) progress.succeededAt = at;
    progress.attempts.push({ messageId, type, at, ...result });
    if (message) progress.sent.push(message.id);
    if (position !== undefined && sent !== 'stay') progress.position = position;
    if (typeof sent === 'object') progress.queued.push({ messageId, body, ...sent });
  }

  return progress;
}
