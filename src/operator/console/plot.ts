import { type Html, html } from '../../docs/html.ts';
import type { ArchiveSummary } from '../archives/list-archives.ts';
import { numberText, utc } from './format.ts';

/** A part of a plot: where it begins and how long and high it is, from 0 to 1; and what it is, in words. */
interface Bar {
  readonly from: number;
  readonly length: number;
  readonly height?: number;
  readonly look?: string;
  readonly text: string;
}

const [width, height] = [600, 36];

function rect({ from, length, height: part = 1, look = '', text }: Bar): Html {
  const [x, y, w, h] = [from * width, height * (1 - part), length * width, height * part].map(each => each.toFixed(1));
  return html`<rect class="${look}" x="${x}" y="${y}" width="${w}" height="${h}"><title>${text}</title></rect>`;
}

/** @param attributes what the picture is for people who do not see it */
function figure(name: string, summary: string, attributes: Html, shapes: readonly Html[]): Html {
  return html`<figure><figcaption><strong>${name}</strong> ${summary}</figcaption>
<svg viewBox="0 0 ${width} ${height}" preserveAspectRatio="none" ${attributes}>${shapes}</svg></figure>`;
}

const dayMs = 86_400_000;
/** The days of a plot. */
export const plottedDays = 14;

/** A small plot of one value per day. @param amountOf gives that of a day, such as 2026-11-24 */
export function plot(name: string, amountOf: (day: string) => number, textOf = numberText): Html {
  const days = Array.from({ length: plottedDays }, (_, at) => {
    const day = new Date(Date.now() - (plottedDays - 1 - at) * dayMs).toISOString().slice(0, 10);
    return { day, value: amountOf(day) };
  });
  const peak = Math.max(...days.map(({ value }) => value));
  const bars = days.map(({ day, value }, at) => ({
    ...{ from: at / plottedDays, length: 0.9 / plottedDays, height: value / (peak || 1) },
    text: `${day}: ${textOf(value)}`,
  }));
  const summary = peak > 0 ? `${textOf(days.at(-1)?.value ?? 0)} today, at most ${textOf(peak)}` : 'none';
  return figure(name, summary, html`role="img" aria-label="${name} per day: ${summary}"`, bars.map(rect));
}

/** Something that happened, in a lane of a line of time. */
export interface Moment {
  readonly lane: string;
  readonly at: string;
  readonly text: string;
  readonly isBad: boolean;
}

/** The length of a moment. */
const tick = 0.006;

/** Where times are on a line from the first of them, and at least a day ago, until now. */
function scale(times: readonly string[]) {
  const now = Date.now();
  const first = Math.min(now - dayMs, ...times.map(at => Date.parse(at)));
  const since = `from ${new Date(first).toISOString().slice(0, 10)} until now`;
  return { first, now, since, x: (at: number): number => ((at - first) / (now - first)) * (1 - tick) };
}

/** One line of time with a lane for each kind. A failure is higher. The table below it says the same in words. */
export function timeline(moments: readonly Moment[], lanes: readonly string[]): Html {
  const { since, x } = scale(moments.map(({ at }) => at));
  const rows = lanes.map(name => {
    const own = moments.filter(({ lane }) => lane === name);
    const bars = own.map(({ at, text, isBad }) => ({
      ...{ from: x(Date.parse(at)), length: tick, height: isBad ? 1 : 0.5, look: isBad ? 'bad' : '' },
      text: `${utc(at)}: ${text}`,
    }));
    const summary = `${own.length} ${since}`;
    return figure(name, summary, html`role="img" aria-label="${name}: ${summary}, in the table below"`, bars.map(rect));
  });
  return html`${rows}`;
}

/** How many links a line of time has. */
const slices = 60;

/**
 * The moments that can be restored: the archives, and until when each one is known to be the present data. A click picks
 * a moment; a keyboard has the input below it.
 * @param chosen is marked @param addressOf the page of a moment, in ISO 8601 without a zone
 */
export function rangeBar(
  archives: readonly Pick<ArchiveSummary, 'snapshotAt' | 'unchangedAt' | 'fault'>[],
  chosen: Date | undefined,
  addressOf: (at: string) => string,
): Html {
  const { first, now, since, x } = scale([
    ...archives.map(({ snapshotAt }) => snapshotAt),
    ...(chosen ? [chosen.toISOString()] : []),
  ]);
  const bars = archives.map(({ snapshotAt, unchangedAt, fault }) => {
    const from = x(Date.parse(snapshotAt));
    const length = Math.max(tick, x(Date.parse(unchangedAt ?? snapshotAt)) - from);
    return rect({
      from,
      length,
      height: 0.7,
      look: fault === null ? 'bar' : 'bar bad',
      text: fault ?? utc(snapshotAt),
    });
  });
  const mark = chosen ? [rect({ from: x(chosen.getTime()), length: tick / 2, text: utc(chosen) })] : [];
  const links = Array.from({ length: slices }, (_, at) => {
    const moment = new Date(first + ((at + 0.5) / slices) * (now - first));
    const slice = rect({ from: at / slices, length: 1 / slices, look: 'slice', text: utc(moment) });
    return html`<a href="${addressOf(moment.toISOString().slice(0, 19))}" tabindex="-1">${slice}</a>`;
  });
  return figure('Archives', since, html`aria-hidden="true"`, [...bars, ...mark, ...links]);
}
