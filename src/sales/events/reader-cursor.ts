import { hash } from 'node:crypto';
import { type Cursor, cursorText, parseCursor } from './change-cursor.ts';
import { type Reader, visibleChanges } from './change-sources.ts';

/**
 * A place in the feed of one reader. A reader whose rights have changed has missed changes, or
 * keeps records that the reader may not see. So a cursor from before the change of rights is
 * refused, and the reader reads the records again.
 */
export interface ReaderCursor {
  readonly cursor: Cursor;
  /** The mark of the reader's access when the cursor was made (`accessMark`). */
  readonly access: string;
}

/**
 * Base 36 digits of a mark: two different accesses have the same mark once in 2 billion times.
 */
const markLength = 6;

/**
 * Returns a mark of what a caller sees of the feed: all resources whose records they may read,
 * and the entity that a scope `Self` is limited to. It is neither secret nor signed: the
 * caller's rights alone decide which changes are sent.
 */
export function accessMark(reader: Reader): string {
  const { resources, ownEntity } = visibleChanges(reader);
  const digest = hash('sha256', JSON.stringify([resources, ownEntity ?? null]), 'hex');

  return (Number.parseInt(digest.slice(0, 12), 16) % 36 ** markLength)
    .toString(36)
    .padStart(markLength, '0');
}

/** Returns the text that clients receive: that of the cursor, and the mark. */
export function readerCursorText(cursor: Cursor, access: string): string {
  return `${cursorText(cursor)}-${access}`;
}

/**
 * Returns the place of a text that `readerCursorText` has made; undefined for any other text.
 */
export function parseReaderCursor(text: string): ReaderCursor | undefined {
  const separator = text.lastIndexOf('-');
  const cursor = parseCursor(text.slice(0, separator));
  const access = text.slice(separator + 1);
  const isMark = access.length === markLength && /^[0-9a-z]+$/.test(access);

  return cursor && isMark ? { cursor, access } : undefined;
}
