import { createRequire } from 'node:module';
import { styleText } from 'node:util';
import { environment } from '../../lib/config/process-environment.ts';
import { type Tone, toneOf } from './state-tone.ts';

/** Spaces between two columns. */
const gap = 2;
/** The minimum width of a column with free text, such as a name, that is cut. */
const minWidth = 16;
/** The maximum width of a column that is shown whole or not at all; an id has 36 characters. */
const maxWholeWidth = 40;

/**
 * Formats rows as aligned columns, fitted to the width of the terminal. The keys of the first
 * row are the heading. Ids, times and names of one word are shown whole, because a cut one
 * cannot be copied. The lines below the table name the last columns, if there is no room for
 * them, and repeat whole each cut text that has a next command.
 * @param whenEmpty the text without any row
 * @param width without a limit, nothing is cut, so that a program can read all of it
 */
export function tableText(
  rows: readonly object[],
  whenEmpty: string,
  width = outputWidth(),
): string {
  if (rows.length === 0) return whenEmpty;

  const layout = layOut(rows, width);
  const omitted = (layout.cells[0] ?? [])
    .slice(layout.widths.length)
    .filter(column => !toldBelow.includes(column));
  const note =
    omitted.length > 0 ? wrap(`Not shown at this width: ${omitted.join(', ')}`, width) : [];

  return [
    ...tableLines(layout),
    ...note.map(line => colour('dim', line)),
    ...cutTexts(layout).flatMap(text => ['', ...wrap(text, width)]),
  ].join('\n');
}

/** The columns whose texts have the next command. */
const toldBelow = ['error', 'why'];
const maxNamed = 3;

/**
 * Returns the width of the terminal, or that in the variable COLUMNS; without both there is no
 * limit.
 */
function outputWidth(): number {
  return process.stdout.columns || Number(environment().COLUMNS) || Number.POSITIVE_INFINITY;
}

/**
 * Formats names and values below each other, with the values aligned. A value for which the
 * terminal has no room there follows below its name, on as many lines as it needs.
 */
export function fieldsText(fields: object): string {
  const entries = Object.entries(fields);
  const width = outputWidth();
  const column = Math.max(...entries.map(([name]) => name.length)) + gap;
  const lines = entries.flatMap(([name, value]) => {
    const text = cellText(value);
    if (column + displayWidth(text) <= width) return [`${name.padEnd(column)}${colourState(text)}`];
    return [name, ...wrap(text, width - gap).map(line => ' '.repeat(gap) + line)];
  });
  return lines.join('\n');
}

/**
 * Breaks a text into lines at its spaces. A word that is longer than a line stays whole,
 * because a cut one cannot be copied.
 */
export function wrap(text: string, width: number): string[] {
  const lines = [''];
  for (const word of text.split(' ')) {
    const line = lines.at(-1) ?? '';
    if (line === '') lines[lines.length - 1] = word;
    else if (displayWidth(`${line} ${word}`) <= width) lines[lines.length - 1] = `${line} ${word}`;
    else lines.push(word);
  }
  return lines;
}

/** The heading and the rows as text, and the widths of the columns for which there is room. */
interface Layout {
  readonly cells: string[][];
  readonly widths: number[];
}

function tableLines({ cells, widths }: Layout): string[] {
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

/**
 * Returns the texts of the columns `error` and `why` that the table cuts or omits: each once,
 * after the rows that have it.
 */
function cutTexts({ cells, widths }: Layout): string[] {
  const [columns = [], ...lines] = cells;
  const name = Math.max(0, columns.indexOf('database'));

  return toldBelow.flatMap(title => {
    const column = columns.indexOf(title);
    const cut = lines.filter(
      ({ [column]: text = none }) => text !== none && displayWidth(text) > (widths[column] ?? 0),
    );
    return [...Map.groupBy(cut, line => line[column])].map(([text, rows]) => {
      const names = rows.slice(0, maxNamed).map(line => line[name]);
      const more = rows.length > maxNamed ? [`${rows.length - maxNamed} more`] : [];
      return `${[...names, ...more].join(', ')}: ${text}`;
    });
  });
}

function layOut(rows: readonly object[], width: number): Layout {
  const columns = Object.keys(rows[0] ?? {});
  const cells = [
    columns,
    ...rows.map(row => {
      const values: Record<string, unknown> = { ...row };
      return columns.map(column => cellText(values[column], width));
    }),
  ];

  const longest = columns.map((_, column) =>
    Math.max(...cells.map(line => displayWidth(line[column] ?? ''))),
  );

  const isFreeText = (column: number) =>
    (longest[column] ?? 0) > maxWholeWidth ||
    cells.slice(1).some(line => line[column]?.includes(' '));

  const minimums = longest.map((max, column) =>
    isFreeText(column) ? Math.min(max, minWidth) : max,
  );
  return { cells, widths: fitWidths(longest, minimums, width) };
}

/**
 * Narrows the columns with free text, the widest first. While that does not suffice, omits the
 * last column.
 */
function fitWidths(
  longest: readonly number[],
  minimums: readonly number[],
  width: number,
): number[] {
  const sum = (widths: readonly number[]) =>
    widths.reduce((total, each) => total + each, (widths.length - 1) * gap);
  let count = longest.length;
  while (count > 1 && sum(minimums.slice(0, count)) > width) count--;
  if (count === 1) return [Math.min(longest[0] ?? 0, width)];

  const fitted = longest.slice(0, count);
  for (let excess = sum(fitted) - width; excess > 0; excess = sum(fitted) - width) {
    const room = fitted.map((each, column) => each - (minimums[column] ?? 0));
    const widest = Math.max(...fitted.filter((_, column) => (room[column] ?? 0) > 0));
    const column = fitted.findLastIndex((each, index) => each === widest && (room[index] ?? 0) > 0);
    fitted[column] = widest - Math.min(excess, room[column] ?? 0);
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

/** The sign for a missing value. */
const none = '–';
const time = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.\d+Z$/;

/**
 * Control characters, and those that reverse the direction of what follows them in a line
 * (Unicode UAX #9 §2): a name with one would show another order of its own letters, and of the
 * columns behind it.
 */
const controls = /[\p{Cc}\u202a-\u202e\u2066-\u2069]+/gu;

/**
 * Replaces control characters: a name must neither break a line nor send a command to the
 * terminal. On a terminal, times have no fractions of seconds.
 */
export function cellText(value: unknown, width = Number.POSITIVE_INFINITY): string {
  const text = String(value ?? none).replace(controls, ' ');
  return width < Number.POSITIVE_INFINITY ? text.replace(time, '$1Z') : text;
}

/** Replaces the control characters of a message, which may have several lines. */
export function messageText(message: string): string {
  return message
    .split('\n')
    .map(line => line.replace(controls, ' '))
    .join('\n');
}

/**
 * Returns the number of columns that a text takes on a terminal: 2 for each wide character,
 * such as 社 or an emoji.
 */
function displayWidth(text: string): number {
  if (/^[ -~–…]*$/.test(text)) return text.length;
  const { default: stringWidth } = createRequire(import.meta.url)(
    'string-width',
  ) as typeof import('string-width');
  return stringWidth(text); // the module is loaded only for such texts
}

type Colour = 'bold' | 'green' | 'yellow' | 'red' | 'dim';

const toneColours: Readonly<Record<Tone, Colour>> = {
  good: 'green',
  busy: 'yellow',
  warn: 'yellow',
  bad: 'red',
  off: 'dim',
};

/** Colours the name of a state; returns any other text unchanged. */
function colourState(text: string): string {
  const tone = toneOf.get(text);
  return tone ? colour(toneColours[tone], text) : text;
}

/** Adds colour on a terminal only, and not when NO_COLOR is set. */
function colour(name: Colour, text: string): string {
  return styleText(name, text, { stream: process.stdout });
}
