import Negotiator from 'negotiator';

/** Returns the next piece of an export; undefined after the last. */
export type NextPiece = () => Promise<string | undefined>;

/** A list as CSV, read and sent piece by piece. */
export class ListExport {
  /** The name of the file, without its extension. */
  readonly name: string;
  readonly next: NextPiece;

  constructor(name: string, next: NextPiece) {
    this.name = name;
    this.next = next;
  }
}

const mediaTypes = ['application/json', 'text/csv'];

/**
 * True if `Accept` prefers CSV to JSON (RFC 9110 §12.5.1): it names `text/csv`, with a higher
 * weight than JSON has, or with the same weight where only a range such as `application/*`
 * covers JSON. Any other header gets JSON. The parameters of `text/csv` are those that the
 * response has.
 */
export function prefersCsv(accept: string | undefined): boolean {
  if (accept === undefined || !/text\/csv/i.test(accept)) return false;
  // Of types with the same weight the package prefers the first of the header. Such a header
  // gets JSON in one of the orders.
  const plain = accept.replace(/(text\/csv)(\s*;\s*(charset="?utf-8"?|header=present))+/gi, '$1');
  const reversed = plain.split(',').reverse().join(',');
  return [plain, reversed].every(
    header =>
      new Negotiator({ headers: { accept: header } }).mediaTypes(mediaTypes)[0] === 'text/csv',
  );
}
