import type { ArchivedTable } from './archive-documents.ts';

export const headerName = 'header.json';
export const manifestName = 'manifest.json';

/** Returns the name of the member with the page of a migration. */
export function pageName(migration: string): string {
  return `schema/${migration}.sql`;
}

/**
 * Maximum characters of the schema, and of the table, in a name: the name of a file may have
 * 255 bytes, and an encoded name of PostgreSQL can have 189. The number in the name
 * distinguishes tables.
 */
const maxPartLength = 100;

/**
 * Returns the name of the member with a piece of a table:
 * `data/<number>-<schema>.<table>.<piece>.csv`. Other characters than letters, digits, `_`, `-`
 * and `.` are percent-encoded, byte by byte in UTF-8; a part that is then longer than 100 is
 * cut.
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
 * The form of the names that members may have. No such name leads out of the folder into which
 * somebody extracts an archive.
 */
const memberName =
  /^(?:header\.json|manifest\.json|schema\/\d{4}-[a-z0-9-]+\.sql|data\/[1-9]\d*-[\w.%-]+\.csv)$/;

/** True if a member of an archive may have this name. */
export function isMemberName(name: string): boolean {
  return memberName.test(name);
}
