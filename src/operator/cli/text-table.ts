import { styleText } from 'node:util';

/** Spaces between two columns. */
const gap = 2;
/**
 * The minimum width of a column. When all columns have it and the table is still too wide, the last ones are omitted.
 */
const minWidth = 16;

/**
 * Formats rows as aligned columns, cut to the width of the terminal. The keys of the first row are the heading.
 * @param whenEmpty the text without any row
 */
export function tableText(rows: readonly object[], whenEmpty: string): string {
  return rows.length > 0 ? tableLines(rows, process.stdout.columns || undefined).join('\n') : whenEmpty;
}

/** Formats names and values below each other, with the values aligned. */
export function fieldsText(fields: object): string {
  const entries = Object.entries(fields);
  const width = Math.max(...entries.map(([name]) => name.length));
  return entries.map(([name, value]) => `${name.padEnd(width)}  ${colourState(String(value ?? '–'))}`).join('\n');
}

/**
 * Formats rows as the lines of a table with aligned columns. The keys of the first row are the heading.
 * @param width of the terminal; without it nothing is cut, so that a program can read all of it
 */
export function tableLines(rows: readonly object[], width = Number.POSITIVE_INFINITY): string[] {
  const columns = Object.keys(rows[0] ?? {});
  const cells = [
    columns,
    ...rows.map(row => {
      const values: Record<string, unknown> = { ...row };
      return columns.map(column => String(values[column] ?? '–'));
    }),
  ];
  const widths = fitWidths(
    columns.map((_, column) => Math.max(...cells.map(line => line[column]?.length ?? 0))),
    width,
  );
  return cells.map((line, row) => {
    const last = widths.length - 1;
    const texts = widths.map((maxLength, column) => {
      const text = truncate(line[column] ?? '', maxLength);
      const padding = ' '.repeat(column === last ? 0 : maxLength - text.length + gap);
      return `${row === 0 ? colour('bold', text) : colourState(text)}${padding}`;
    });
    return texts.join('').trimEnd();
  });
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
  return text.length > width ? `${text.slice(0, width - 1)}…` : text;
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
