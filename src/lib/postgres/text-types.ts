import pg from 'pg';

const { DATE, TIMESTAMP, TIMESTAMPTZ, INTERVAL } = pg.types.builtins;
const texts = new Set<number>([DATE, TIMESTAMP, TIMESTAMPTZ, INTERVAL]);
/** Arrays of those types: date[], timestamp[], timestamptz[], interval[]. */
const textArrays = new Set<number>([1182, 1115, 1185, 1187]);
/** text[], which `pg` parses, and does not name. */
const textArray: number = 1009;

/**
 * Parsers of values that leave dates, times and intervals as PostgreSQL writes them, as
 * MikroORM needs them: a `Date` has no microseconds, and a date without a time would get the
 * time zone of this process.
 */
export const textTypes: pg.CustomTypesConfig = {
  getTypeParser(oid, format) {
    if (texts.has(oid)) return (text: string) => text;

    return pg.types.getTypeParser(textArrays.has(oid) ? textArray : oid, format);
  },
};
