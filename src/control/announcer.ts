import { type ChangeTopic, changeChannel, type deliveryTopic } from './change-topics.ts';
import { type ControlDatabase, queryControl } from './database.ts';

/** Notifies every process, through the change feed, that cached data with this key is no longer current. */
export type Announce = (topic: ChangeTopic | typeof deliveryTopic, key: string) => Promise<void>;

const announcement = `select pg_notify('${changeChannel}', payload) from unnest($1::text[]) as payload`;

interface Batch {
  readonly payloads: Set<string>;
  readonly sent: Promise<void>;
}

/**
 * Returns a function that announces changes. It sends one batch at a time; announcements that are made meanwhile form
 * the next batch. The promise resolves when the control database has accepted the batch: every listening process will
 * receive it. It rejects when the batch was not sent.
 */
export function createAnnouncer(control: ControlDatabase): Announce {
  let lastSettled: Promise<void> = Promise.resolve();
  let nextBatch: Batch | undefined;

  const send = async (payloads: Set<string>): Promise<void> => {
    await queryControl(control, 'announce', announcement, [[...payloads]]);
  };
  const planBatch = (): Batch => {
    const payloads = new Set<string>();
    const sent = lastSettled.then(() => {
      // Closes the batch before it is sent: another process may receive it and read data again before a change that is
      // announced after this point, so such a change needs a notification of its own.
      nextBatch = undefined;
      return send(payloads);
    });
    lastSettled = sent.catch(() => {});
    return { payloads, sent };
  };
  return (topic, key) => {
    nextBatch ??= planBatch();
    nextBatch.payloads.add(`${topic}:${key}`);
    return nextBatch.sent;
  };
}
