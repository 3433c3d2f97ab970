import { createRequire } from 'node:module';
import { styleText } from 'node:util';

/** Spaces between two columns. */
const gap = 2;
/**
 * The minimum width of a column. When all columns have it and the table is still too wide, the last ones are omitted.
 */
const minWidth = 16;

/**
 * Formats rows as aligned columns, cut to the width of the terminal. The keys of the first row are the heading. A last
 * line names the columns for which there is no room.
 * @param whenEmpty the text without any row
 */
export function tableText(rows: readonly object[], whenEmpty: string): string {
  if (rows.length === 0) return whenEmpty;
  const width = process.stdout.columns || undefined;
  const omitted = omittedColumns(rows, width);
  const note = omitted.length > 0 ? [colour('dim', `Not shown at this width: ${omitted.join(', ')}`)] : [];
  return [...tableLines(rows, width), ...note].join('\n');
}

/** Formats rows as `tableText` does, and cuts nothing. */
export function fullTableText(rows: readonly object[], whenEmpty: string): string {
  return rows.length > 0 ? tableLines(rows).join('\n') : whenEmpty;
}

/** Formats names and values below each other, with the values aligned. */
export function fieldsText(fields: object): string {
  const entries = Object.entries(fields);
  const width = Math.max(...entries.map(([name]) => name.length));
  return entries.map(([name, value]) => `${name.padEnd(width)}  ${colourState(cellText(value))}`).join('\n');
}

/**
 * Formats rows as the lines of a table with aligned columns. The keys of the first row are the heading.
 * @param width of the terminal; without it nothing is cut, so that a program can read all of it
 */
export function tableLines(rows: readonly object[], width = Number.POSITIVE_INFINITY): string[] {
  const { cells, widths } = layOut(rows, width);
  return cells.map((line, row) => {
    const last = widths.length - 1;
    const texts = widths.map((maxLength, column) => {
      const text = truncate(line[column] ?? '', maxLength);
      const padding = ' '.repeat(column === last ? 0 : maxLength - displayWidth(text) + gap);
      return `${row === 0 ? colour('bold', text) : colourState(text)}${padding}`;
    });
    return texts.join('').trimEnd();
  });
}

/** Returns the last columns of a table, those for which the terminal has no room. */
export function omittedColumns(rows: readonly object[], width = Number.POSITIVE_INFINITY): string[] {
  return Object.keys(rows[0] ?? {}).slice(layOut(rows, width).widths.length);
}

/** Returns the heading and the rows as text, and the widths of the columns for which there is room. */
function layOut(rows: readonly object[], width: number): { cells: string[][]; widths: number[] } {
  const columns = Object.keys(rows[0] ?? {});
  const cells = [
    columns,
    ...rows.map(row => {
      const values: Record<string, unknown> = { ...row };
      return columns.map(column => cellText(values[column]));
    }),
  ];
  const longest = columns.map((_, column) => Math.max(...cells.map(line => displayWidth(line[column] ?? ''))));
  return { cells, widths: fitWidths(longest, width) };
}

/** Narrows the widest column first, until the table fits into the width. */
function fitWidths(widths: number[], width: number): number[] {
  const fitted = [...widths];
  const excess = () => fitted.reduce((sum, each) => sum + each, (fitted.length - 1) * gap) - width;
  while (excess() > 0 && fitted.length > 1) {
    const widest = Math.max(...fitted);
    if (widest > minWidth) fitted[fitted.lastIndexOf(widest)] = Math.max(minWidth, widest - excess());
    else fitted.pop();
  }
  return fitted;
}

function truncate(text: string, width: number): string {
  if (displayWidth(text) <= width) return text;
  let cut = '';
  for (const { segment } of new Intl.Segmenter().segment(text)) {
    if (displayWidth(cut + segment) >= width) break;
    cut += segment;
  }
  return `${cut}…`;
}

/** Replaces control characters: a name must neither break a line nor send a command to the terminal. */
function cellText(value: unknown): string {
  return String(value ?? '–').replace(/\p{Cc}+/gu, ' ');
}

/** Returns the number of columns that a text takes on a terminal: 2 for each wide character, such as 社 or an emoji. */
function displayWidth(text: string): number {
  if (/^[ -~–…]*$/.test(text)) return text.length;
  const { default: stringWidth } = createRequire(import.meta.url)('string-width') as typeof import('string-width');
  return stringWidth(text); // the module is loaded only for such texts
}

type Colour = 'bold' | 'green' | 'yellow' | 'red' | 'dim';

const stateColours: Record<string, Colour> = {
  active: 'green',
  ready: 'green',
  succeeded: 'green',
  suspended: 'yellow',
  provisioning: 'yellow',
  retiring: 'yellow',
  outdated: 'yellow',
  unfinished: 'yellow',
  halted: 'yellow',
  failed: 'red',
  abandoned: 'red',
  disabled: 'dim',
  deleted: 'dim',
  revoked: 'dim',
};

/** Colours the name of a state; returns any other text unchanged. */
function colourState(text: string): string {
  const stateColour = stateColours[text];
  return stateColour ? colour(stateColour, text) : text;
}

/** Adds colour on a terminal only, and not when NO_COLOR is set. */
function colour(name: Colour, text: string): string {
  return styleText(name, text, { stream: process.stdout });
}
