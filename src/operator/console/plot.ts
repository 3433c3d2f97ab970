import { type Html, html } from '../../docs/html.ts';
import type { ArchiveSummary } from '../archives/list-archives.ts';
import { utc } from './format.ts';

const [width, height, gap] = [240, 56, 2];

/** A small plot of one value per day. @param text says the same for people who do not see it */
export function plot(
  name: string,
  values: readonly { readonly label: string; readonly value: number }[],
  text: (value: number) => string,
): Html {
  const peak = Math.max(0, ...values.map(({ value }) => value));
  const step = width / Math.max(1, values.length);
  const bars = values.map(({ label, value }, at) => {
    const length = value === 0 ? 0 : Math.max(1, (value / peak) * height);
    return html`<rect x="${(at * step).toFixed(1)}" y="${(height - length).toFixed(1)}" width="${Math.max(1, step - gap).toFixed(1)}" height="${length.toFixed(1)}"><title>${label}: ${text(value)}</title></rect>`;
  });
  const summary = peak > 0 ? `${text(values.at(-1)?.value ?? 0)} today, at most ${text(peak)}` : 'none';
  return html`<figure class="plot"><figcaption><strong>${name}</strong> ${summary}</figcaption>
<svg viewBox="0 0 ${width} ${height}" role="img" aria-label="${name} per day: ${summary}" preserveAspectRatio="none">${bars}</svg></figure>`;
}

/** Something that happened, in a lane of a line of time. */
export interface Moment {
  readonly lane: string;
  readonly at: string;
  readonly text: string;
  readonly isBad: boolean;
}

const lane = { height: 22, width: 600 };
const dayMs = 86_400_000;

/** Where times are on a line from the first of them, and at least a day ago, until now. */
function scale(times: readonly string[]) {
  const now = Date.now();
  const first = Math.min(now - dayMs, ...times.map(at => Date.parse(at)));
  const captions = html`<figcaption><span>${new Date(first).toISOString().slice(0, 10)}</span><span>now</span></figcaption>`;
  return { first, now, captions, x: (at: number): number => 8 + ((at - first) / (now - first)) * (lane.width - 16) };
}

/** One line of time with a lane for each kind. The table below it says the same in words. */
export function timeline(moments: readonly Moment[], lanes: readonly string[]): Html {
  const { first, now, captions, x } = scale(moments.map(({ at }) => at));
  const rows = lanes.map((name, row) => {
    const y = row * lane.height + lane.height / 2;
    const marks = moments
      .filter(moment => moment.lane === name)
      .map(({ at, text, isBad }) => {
        const title = html`<title>${utc(at)}: ${text}</title>`;
        const cx = x(Date.parse(at)).toFixed(1);
        return isBad
          ? html`<path class="bad" d="M${Number(cx) - 5} ${y - 5}l10 10m0 -10l-10 10">${title}</path>`
          : html`<circle cx="${cx}" cy="${y}" r="4">${title}</circle>`;
      });
    return html`<line x1="0" x2="${lane.width}" y1="${y}" y2="${y}"/>${marks}`;
  });
  const days = Math.ceil((now - first) / dayMs);
  return html`<figure class="timeline"><div class="lanes" aria-hidden="true">${lanes.map(name => html`<span>${name}</span>`)}</div>
<svg viewBox="0 0 ${lane.width} ${lanes.length * lane.height}" role="img" aria-label="Line of time of the last ${days} days; the table below has its ${moments.length} events">${rows}</svg>
${captions}</figure>`;
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
  const { first, now, captions, x } = scale([
    ...archives.map(({ snapshotAt }) => snapshotAt),
    ...(chosen ? [chosen.toISOString()] : []),
  ]);
  const bars = archives.map(({ snapshotAt, unchangedAt, fault }) => {
    const from = x(Date.parse(snapshotAt));
    const length = Math.max(3, x(Date.parse(unchangedAt ?? snapshotAt)) - from);
    return html`<rect class="${fault === null ? '' : 'bad'}" x="${from.toFixed(1)}" y="3" width="${length.toFixed(1)}" height="18"/>`;
  });
  const links = Array.from({ length: slices }, (_, at) => {
    const part = (now - first) / slices;
    const moment = new Date(first + (at + 0.5) * part);
    const from = x(first + at * part);
    return html`<a href="${addressOf(moment.toISOString().slice(0, 19))}" tabindex="-1"><rect class="slice" x="${from.toFixed(1)}" width="${((lane.width - 16) / slices).toFixed(1)}" height="24"><title>${utc(moment)}</title></rect></a>`;
  });
  const mark = chosen && x(chosen.getTime()).toFixed(1);
  return html`<figure class="timeline range"><svg viewBox="0 0 ${lane.width} 24" aria-hidden="true" preserveAspectRatio="none">
<line x1="0" x2="${lane.width}" y1="12" y2="12"/>${bars}${mark && html`<path class="chosen" d="M${mark} 0v24"/>`}${links}</svg>${captions}</figure>`;
}
