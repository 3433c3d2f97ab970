import { type Html, html } from '../../lib/html/html.ts';
import { numberText, utc } from './format.ts';

/** A part of a plot: its place, length and height, from 0 to 1; and its meaning, in words. */
interface Bar {
  readonly from: number;
  readonly length: number;
  readonly height: number;
  readonly look?: string;
  readonly text: string;
}

const [width, height] = [600, 36];

function rect({ from, length, height: part, look = '', text }: Bar): Html {
  const [x, y, w, h] = [from * width, height * (1 - part), length * width, height * part].map(
    each => each.toFixed(1),
  );
  return html`<rect class="${look}" x="${x}" y="${y}" width="${w}" height="${h}"><title>${text}</title></rect>`;
}

/** A picture, with its meaning in words. */
function figure(name: string, words: string, shapes: readonly Html[]): Html {
  return html`<figure><figcaption><strong>${name}</strong> ${words}</figcaption>
<svg viewBox="0 0 ${width} ${height}" preserveAspectRatio="none" aria-hidden="true">${shapes}</svg></figure>`;
}

const dayMs = 86_400_000;
/** The days of a plot. */
export const plottedDays = 14;

/**
 * A small plot of one value per day.
 * @param amountOf gives that of a day, such as 2026-11-24
 */
export function plot(name: string, amountOf: (day: string) => number, textOf = numberText): Html {
  const days = Array.from({ length: plottedDays }, (_, at) => {
    const day = new Date(Date.now() - (plottedDays - 1 - at) * dayMs).toISOString().slice(0, 10);
    return { day, value: amountOf(day) };
  });
  const peak = Math.max(...days.map(({ value }) => value));
  const bars = days.map(({ day, value }, at) => ({
    from: at / plottedDays,
    length: 0.9 / plottedDays,
    height: value / (peak || 1),
    text: `${day}: ${textOf(value)}`,
  }));

  const words =
    peak > 0 ? `${textOf(days.at(-1)?.value ?? 0)} today, at most ${textOf(peak)}` : 'none';
  return figure(name, words, bars.map(rect));
}

/** An event, or a state until a later moment, on a line of time. Times are in ISO 8601. */
interface Moment {
  readonly at: string;
  readonly until?: string | null;
  readonly text: string;
  readonly isBad?: boolean;
  /** True for the moment that somebody has picked. */
  readonly isChosen?: boolean;
}

/** The length of a moment. */
const tick = 0.006;
/** The number of links of a line of time. */
const slices = 60;

/**
 * A line of time from the first moment, and at least a day ago, until now. A table says the
 * same in words.
 * @param addressOf the page of a moment, which a click opens, in ISO 8601 without a zone; a
 *   keyboard has an input for it
 */
export function timeline(
  name: string,
  moments: readonly Moment[],
  addressOf?: (at: string) => string,
): Html {
  const now = Date.now();
  const first = Math.min(now - dayMs, ...moments.map(({ at }) => Date.parse(at)));
  const x = (at: string): number => ((Date.parse(at) - first) / (now - first)) * (1 - tick);

  const bars = moments.map(({ at, until, text, isBad, isChosen }) => ({
    from: x(at),
    length: Math.max(tick, x(until ?? at) - x(at)),
    height: isBad || isChosen ? 1 : 0.6,
    look: isBad ? 'bad' : isChosen ? 'chosen' : '',
    text: `${utc(at)}: ${text}`,
  }));

  const links = Array.from({ length: addressOf ? slices : 0 }, (_, at) => {
    const moment = new Date(first + ((at + 0.5) / slices) * (now - first));
    const slice = rect({
      from: at / slices,
      length: 1 / slices,
      height: 1,
      look: 'slice',
      text: utc(moment),
    });
    return html`<a href="${addressOf?.(moment.toISOString().slice(0, 19))}" tabindex="-1">${slice}</a>`;
  });

  const words = `from ${utc(new Date(first))} until now`;
  return figure(name, words, [...bars.map(rect), ...links]);
}
