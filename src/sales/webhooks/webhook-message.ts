import { type Change, sentChange } from '../events/change.ts';
import { type Cursor, parseEventId, unproved } from '../events/change-cursor.ts';

/**
 * Returns the place before the change of a message; undefined for the id of another message.
 */
export function placeBefore(messageId: string): Cursor | undefined {
  const cursor = parseEventId(messageId);
  return cursor && ofThisData({ ...cursor, id: cursor.id - 1 });
}

/**
 * Returns a cursor that needs no proof: one that the tenant's database has stored belongs to
 * the data there, whenever it was made.
 */
export function ofThisData(cursor: Cursor): Cursor {
  return { ...cursor, madeIn: Number.MAX_SAFE_INTEGER, madeAt: unproved };
}

/**
 * The body of a message about a change, in the form of Standard Webhooks.
 * @param access the mark of the access of the webhook's user (`accessMark`)
 */
export function changeBody(change: Change, access: string, payload: 'thin' | 'record'): string {
  const included = payload === 'record' ? (['record'] as const) : [];

  return messageBody(change.Type, change.At, sentChange(change, access, included));
}

export function messageBody(type: string, timestamp: string, data: object): string {
  return JSON.stringify({ type, timestamp, data });
}

/** The type of a stored message. */
export function typeOf(body: string): string {
  const { type }: { type: unknown } = JSON.parse(body);
  return String(type);
}
