import pg from 'pg';

/** Quotes a name for use in SQL. */
export const quoteIdentifier = (name: string): string => pg.escapeIdentifier(name);

/**
 * Quotes a text for use as an SQL string, where PostgreSQL takes no parameter (`create role …
 * password '…'`).
 */
export const quoteLiteral = (value: string): string => pg.escapeLiteral(value);
