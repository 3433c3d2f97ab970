import { styleText } from 'node:util';

const gap = 2;
/** A column may be cut to this; when all are, the last ones are left out. */
const minWidth = 16;

/**
 * Rows as aligned columns, the keys of the first row as the heading.
 * @param width of the terminal; without one nothing is cut, so that a program reads all of it
 */
export function tableLines(rows: Record<string, unknown>[], width = Number.POSITIVE_INFINITY): string[] {
  const columns = Object.keys(rows[0] ?? {});
  const cells = [columns, ...rows.map(row => columns.map(column => String(row[column] ?? '–')))];
  const widths = shrink(
    columns.map((_, column) => Math.max(...cells.map(line => line[column]?.length ?? 0))),
    width,
  );
  return cells.map((line, row) => {
    const last = widths.length - 1;
    const texts = widths.map((most, column) => {
      const text = cut(line[column] ?? '', most);
      const padding = ' '.repeat(column === last ? 0 : most - text.length + gap);
      return `${row === 0 ? inColour('bold', text) : colourful(text)}${padding}`;
    });
    return texts.join('').trimEnd();
  });
}

/** The widest column gives way first. */
function shrink(widths: number[], width: number): number[] {
  const shrunk = [...widths];
  const excess = () => shrunk.reduce((sum, each) => sum + each, (shrunk.length - 1) * gap) - width;
  while (excess() > 0 && shrunk.length > 1) {
    const widest = Math.max(...shrunk);
    if (widest > minWidth) shrunk[shrunk.lastIndexOf(widest)] = Math.max(minWidth, widest - excess());
    else shrunk.pop();
  }
  return shrunk;
}

function cut(text: string, width: number): string {
  return text.length > width ? `${text.slice(0, width - 1)}…` : text;
}

type Colour = 'bold' | 'green' | 'yellow' | 'red' | 'dim';

const colours: Record<string, Colour> = {
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

/** A word for a state in its colour; anything else as it is. */
export function colourful(text: string): string {
  const colour = colours[text];
  return colour ? inColour(colour, text) : text;
}

/** On a terminal only, and not when NO_COLOR is set. */
export function inColour(colour: Colour, text: string): string {
  return styleText(colour, text, { stream: process.stdout });
}
