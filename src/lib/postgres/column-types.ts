import pg from 'pg';

const { INT8, NUMERIC, TIMESTAMPTZ } = pg.types.builtins;
const int8Array = 1016;
const numbers: [number, (text: string) => unknown][] = [
  [INT8, Number],
  [NUMERIC, Number],
  [int8Array, text => (text === '{}' ? [] : text.slice(1, -1).split(',').map(Number))],
];
/** Columns as the values of responses. */
export const responseTypes = typeParsers([...numbers, [TIMESTAMPTZ, toIso]]);
/** Columns as the properties of an entity. */
// keeps microseconds when written back
export const entityTypes = typeParsers([...numbers, [TIMESTAMPTZ, text => text]]);

/** Parses columns by their type; types that are not listed are parsed as `pg` does. */
function typeParsers(parsers: [number, (text: string) => unknown][]): pg.CustomTypesConfig {
  const byType = new Map(parsers);
  return {
    getTypeParser: (type, format) => byType.get(type) ?? pg.types.getTypeParser(type, format),
  };
}

/**
 * Converts a timestamp as PostgreSQL writes it in a session whose time zone is UTC, also in
 * JSON: `2026-11-21 10:00:00.123456+00` → `2026-11-21T10:00:00.123Z`. Other texts (`infinity`)
 * are returned unchanged.
 */
export function toIso(text: string): string {
  const parts = /^(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?\+00(?::00)?$/.exec(text);
  if (!parts) return text;
  return `${parts[1]}T${parts[2]}.${(parts[3] ?? '').padEnd(3, '0').slice(0, 3)}Z`;
}
