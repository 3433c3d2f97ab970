/**
 * A place in the feed of changes of one tenant: after one change. Changes are ordered by the
 * era of the database, the id of their transaction, their kind, and the id of their row.
 */
export interface Cursor {
  /**
   * The era in which the cursor was made. It shows whether the data were replaced since then.
   */
  readonly madeIn: number;
  readonly era: number;
  readonly xid: number;
  readonly kind: number;
  readonly id: number;
  /**
   * The time of the last change at or before the place, in microseconds since 1970; 0: there
   * was none. It proves that the database still has that change: a server that was put back to
   * an earlier state uses ids again.
   */
  readonly madeAt: number;
}

/** The place before the first change of the feed. */
export const firstCursor: Cursor = {
  madeIn: Number.MAX_SAFE_INTEGER,
  era: 0,
  xid: 0,
  kind: 0,
  id: 0,
  madeAt: 0,
};
/** The `madeAt` of a place that needs no proof. No text that `parseCursor` accepts has it. */
export const unproved = -1;

/** Returns the text of a cursor: six numbers of base 36. */
export function cursorText({ madeIn, era, xid, kind, id, madeAt }: Cursor): string {
  return [madeIn, era, xid, kind, id, madeAt].map(number => number.toString(36)).join('-');
}

/** Returns the cursor of a text that `cursorText` has made; undefined for any other text. */
export function parseCursor(text: string): Cursor | undefined {
  if (!/^[0-9a-z]{1,11}(-[0-9a-z]{1,11}){5}$/.test(text)) return undefined;

  const numbers = text.split('-').map(part => Number.parseInt(part, 36));
  if (!numbers.every(Number.isSafeInteger)) return undefined;

  const [madeIn, era, xid, kind, id, madeAt] = numbers as [
    number,
    number,
    number,
    number,
    number,
    number,
  ];

  return { madeIn, era, xid, kind, id, madeAt };
}

const eventPrefix = 'evt_';

/**
 * Returns the id of the change before a cursor, which is the same for every reader, in the
 * feed, in streams and in all messages of webhooks, also after a move of the tenant. It is the
 * place of the change, without the era in which it was read.
 */
export function eventIdOf(cursor: Cursor): string {
  return `${eventPrefix}${cursorText(cursor).split('-').slice(1).join('-')}`;
}

/** Returns the place after the change of an id; undefined for any other text. */
export function parseEventId(text: string): Cursor | undefined {
  if (!text.startsWith(eventPrefix)) return undefined;
  return parseCursor(`0-${text.slice(eventPrefix.length)}`);
}

/** The place of a cursor in the order of changes. */
type Place = Pick<Cursor, 'era' | 'xid' | 'kind' | 'id'>;

/**
 * Returns a number below 0 if the first place is before the second, 0 if they are equal, and a
 * number above 0 otherwise.
 */
export function compareCursors(one: Place, other: Place): number {
  return one.era - other.era || one.xid - other.xid || one.kind - other.kind || one.id - other.id;
}
