import type { ArchivedTable } from './archive-documents.ts';

export const headerName = 'header.json';
export const manifestName = 'manifest.json';

/** Returns the name of the member with the page of a migration. */
export function pageName(migration: string): string {
  return `schema/${migration}.sql`;
}

/**
 * Longest part of a name that is the schema, or the table: a file may have a name of 255 bytes,
 * and an encoded name of PostgreSQL can have 189. The number tells tables apart.
 */
const maxPartLength = 100;

/**
 * Returns the name of the member with a piece of a table:
 * `data/<number>-<schema>.<table>.<piece>.csv`. Other characters than letters, digits, `_`, `-`
 * and `.` are percent-encoded, byte by byte in UTF-8, and what is longer than 100 then is cut.
 * @param number of the table, from 1
 * @param piece from 1
 */
export function pieceName(
  number: number,
  { schema, name }: Pick<ArchivedTable, 'schema' | 'name'>,
  piece: number,
) {
  return `data/${number}-${encode(schema)}.${encode(name)}.${piece}.csv`;
}

function encode(text: string): string {
  const encoded = encodeURIComponent(text).replace(/[!'()*~]/g, character => {
    return `%${character.charCodeAt(0).toString(16).toUpperCase()}`;
  });

  return encoded.slice(0, maxPartLength);
}

/**
 * The form of each name that a member may have: none leaves the folder into which somebody
 * extracts it.
 */
const memberName =
  /^(?:header\.json|manifest\.json|schema\/\d{4}-[a-z0-9-]+\.sql|data\/[1-9]\d*-[\w.%-]+\.csv)$/;

/** Returns whether a member of an archive may have this name. */
export function isMemberName(name: string): boolean {
  return memberName.test(name);
}
