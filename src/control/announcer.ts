import { type ControlDatabase, queryControl } from './database.ts';

/** Tells every process, through the change feed, that what it keeps of a subject is not current any more. */
export type Announce = (table: string, key: string) => Promise<void>;

const announcement = `select pg_notify('control_changes', payload) from unnest($1::text[]) as payload`;

/**
 * One announcement is on its way at a time; what is to be announced meanwhile goes with the next, together. It resolves
 * when the control database has taken it: every process that listens will be told.
 */
export function createAnnouncer(control: ControlDatabase): Announce {
  let last: Promise<void> = Promise.resolve();
  let next: { payloads: Set<string>; sent: Promise<void> } | undefined;

  const send = async (payloads: Set<string>): Promise<void> => {
    await queryControl(control, 'announce', announcement, [[...payloads]]);
  };
  const plan = () => {
    const payloads = new Set<string>();
    const sent = last.then(() => {
      next = undefined; // who comes from here on may have changed something after this one was read elsewhere
      return send(payloads);
    });
    last = sent.catch(() => {});
    return { payloads, sent };
  };
  return (table, key) => {
    next ??= plan();
    next.payloads.add(`${table}:${key}`);
    return next.sent;
  };
}
