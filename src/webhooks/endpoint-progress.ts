import type { Change } from '../events/change.ts';
import { afterAttempt, type EndpointState, type StoredEndpoint, type StoredMessage } from './endpoint-state.ts';
import type { SendResult } from './send-webhook.ts';
import { typeOf } from './webhook-message.ts';

/** Something to be sent: a change, or a message beside the feed. */
export interface Item {
  readonly messageId: string;
  readonly body: string;
  readonly change?: Change;
  readonly message?: StoredMessage;
}

/** A message to be stored, and when it is sent. */
export interface NewMessage extends Omit<StoredMessage, 'id'> {
  readonly at: number;
}

/** An attempt, as it is logged. */
interface Attempt extends Pick<SendResult, 'durationMs' | 'status' | 'error' | 'response'> {
  readonly messageId: string;
  readonly type: string;
  readonly at: number;
}

/** What a process has done for an endpoint since it read it. */
export interface Progress {
  readonly state: EndpointState;
  readonly position: string;
  readonly disable: 'gone' | 'failing' | undefined;
  readonly succeededAt: number | undefined;
  /** Ids of messages that need no more attempt. */
  readonly ended: number[];
  readonly retried: { readonly id: number; readonly failures: number; readonly at: number }[];
  readonly queued: NewMessage[];
  readonly attempts: Attempt[];
}

export const unchanged = (endpoint: StoredEndpoint): Progress => ({
  ...{ state: endpoint, position: endpoint.position, disable: undefined, succeededAt: undefined },
  ...{ ended: [], retried: [], queued: [], attempts: [] },
});

/** What follows from the results of a batch. What has no result is sent again, and so are the changes after such a one. */
export function progressOf(
  endpoint: StoredEndpoint,
  items: readonly Item[],
  results: readonly (SendResult | undefined)[],
  at: number,
): Progress {
  const progress = unchanged(endpoint);
  let { position, disable, succeededAt } = progress;
  let state: EndpointState = endpoint;
  const firstCutOff = items.findIndex(({ change }, index) => change && !results[index]);
  items.forEach(({ messageId, body, change, message }, index) => {
    const result = results[index];
    if (!result || (change && firstCutOff >= 0 && index > firstCutOff)) return;
    const type = change?.Type ?? typeOf(body);
    const sent = message
      ? {
          kind: 'message' as const,
          failures: message.failures,
          isRetried: type !== 'webhook.test',
          isOrdered: type === 'webhook.gap',
        }
      : { kind: 'change' as const };
    const step = afterAttempt(state, sent, result, { now: at, random: Math.random() });
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
