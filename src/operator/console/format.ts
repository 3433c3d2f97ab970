import { type Html, html } from '../../lib/html/html.ts';
import { type Tone, toneOf } from '../command/state-tone.ts';
import { sizeText } from '../command/texts.ts';

/** The sign for a value that there is not. */
export const none = html`<span class="none">–</span>`;

/** A value in a table or beside a name. Null and an empty text are no value. */
export type Cell = Html | string | number | null | undefined;

export const cellView = (cell: Cell) =>
  typeof cell === 'number' ? numberText(cell) : cell || none;

export const numberText = (count: number): string => count.toLocaleString('en');

/** The shapes of states: nobody needs to tell colours apart. */
const shapes: Readonly<Record<Tone, string>> = {
  good: '●',
  busy: '◐',
  warn: '▲',
  bad: '✕',
  off: '○',
};

/**
 * The word of a state with its shape.
 * @param word of an unknown state: it has no shape
 */
export function state(word: string, tone = toneOf.get(word)): Html {
  return tone
    ? html`<span class="state ${tone}"><span aria-hidden="true">${shapes[tone]}</span> ${word}</span>`
    : html`${word}`;
}

/** A number that should be 0: any other one is shown as a state. */
export function fault(count: number, tone: Tone): Html | number {
  return count > 0 ? state(numberText(count), tone) : count;
}

/** Returns how many there are in each state. */
export function states(counts: Readonly<Record<string, number>>): Html {
  return html`${Object.entries(counts).map(([name, count], at) => html`${at > 0 ? ', ' : ''}${numberText(count)} ${state(name)}`)}`;
}

const units = [
  [86_400_000, 'd'],
  [3_600_000, 'h'],
  [60_000, 'min'],
  [1_000, 's'],
] as const;

/** A duration in its largest unit: `3 min`. */
export function durationText(ms: number): string {
  const [size, unit] = units.find(([size]) => ms >= size) ?? [1, 'ms'];
  return `${Math.floor(ms / size)} ${unit}`;
}

/** A time as its distance from now, with the time in UTC as title. */
export function time(at: string | Date | null | undefined): Html {
  if (!at) return none;
  const ms = Date.now() - new Date(at).getTime();
  const text =
    Math.abs(ms) < 1_000 ? 'now' : ms < 0 ? `in ${durationText(-ms)}` : `${durationText(ms)} ago`;
  return html`<time datetime="${new Date(at).toISOString()}" title="${utc(at)}">${text}</time>`;
}

/** The hour that a measurement is known by: `2026-11-24, 22:00 to 23:00 UTC`. */
export function hour(at: string | null | undefined): Cell {
  if (!at) return none;

  const begin = new Date(at);
  const end = new Date(begin.getTime() + 3_600_000);
  const [day, time] = begin.toISOString().split('T');
  return `${day}, ${time?.slice(0, 5)} to ${end.toISOString().slice(11, 16)} UTC`;
}

/** `2026-11-24 22:50:39 UTC` */
export function utc(at: string | Date): string {
  return `${new Date(at).toISOString().slice(0, 19).replace('T', ' ')} UTC`;
}

/** The beginning of a long text, such as that of an error. */
export function shorten(text: string, max = 200): string {
  return text.length > max ? `${text.slice(0, max)}…` : text;
}

export function size(bytes: number | null | undefined): string | undefined {
  return typeof bytes === 'number' ? sizeText(bytes) : undefined;
}

export function inlineCode(text: string | null | undefined): Html {
  return text ? html`<code>${text}</code>` : none;
}

const version = (name: string): Html => inlineCode(name.slice(0, 4));

/**
 * The formats of the values of properties, by the name of the property. A name that ends in
 * `At` or `Until` is that of a time.
 */
export const valueFormats: Readonly<Record<string, (value: never) => Cell>> = {
  state,
  status: state,
  outcomes: states,
  bytes: size,
  ms: durationText,
  error: shorten,
  database: inlineCode,
  kid: inlineCode,
  build: inlineCode,
  version,
  schemaVersion: version,
  tenantHead: version,
  head: version,
  from: version,
  to: version,
};

/** A text that can be long, such as that of an error. */
export function textBlock(text: Html | string, label: string, look = ''): Html {
  return html`<pre class="${look}" tabindex="0" role="group" aria-label="${label}">${text}</pre>`;
}
