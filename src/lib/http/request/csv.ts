/**
 * The pattern of cells that spreadsheets run as formulas: they begin with one of these
 * characters; for some spreadsheets, with its full-width form. A cell with apostrophes before
 * the character gets one more, so that `readText` can take one away. PostgreSQL understands the
 * pattern, too.
 */
export const formulaPattern = "^'*[-=+@＝＋－＠\t\r\n]";
const formula = new RegExp(formulaPattern);

/** The mark at the beginning of a file by which Excel recognises UTF-8. */
export const byteOrderMark = '\uFEFF';

/**
 * Writes a row of CSV (RFC 4180): cells separated by commas, CRLF at the end. A number or a
 * boolean is written as in JSON, null as nothing, an empty text as `""`, a list or an object as
 * its JSON text.
 *
 * A text that a spreadsheet would run as a formula gets an apostrophe before it; `readText`
 * takes it away. A negative number needs none: it is no formula.
 */
export function csvRow(values: readonly unknown[]): string {
  return `${values.map(csvCell).join(',')}\r\n`;
}

/**
 * Returns the text that a cell stands for: without the apostrophe that `csvRow` has written
 * before it.
 */
export function readText(cell: string): string {
  return cell.startsWith("'") && formula.test(cell) ? cell.slice(1) : cell;
}

function csvCell(value: unknown): string {
  if (value === null || value === undefined) return '';
  if (typeof value === 'string') return quoted(formula.test(value) ? `'${value}` : value);
  return quoted(JSON.stringify(value));
}

function quoted(text: string): string {
  return text === '' || /[",;\r\n\t]|^\s|\s$/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
