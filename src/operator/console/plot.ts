import { type Html, html } from '../../docs/html.ts';
import { utc } from './view.ts';

const [width, height, gap] = [240, 56, 2];

/** A small plot of one value per day. @param text says the same for people who do not see it */
export function plot(
  name: string,
  values: readonly { readonly label: string; readonly value: number }[],
  text: (value: number) => string,
): Html {
  const max = Math.max(1, ...values.map(({ value }) => value));
  const step = width / Math.max(1, values.length);
  const bars = values.map(({ label, value }, at) => {
    const length = value === 0 ? 0 : Math.max(1, (value / max) * height);
    const x = (at * step).toFixed(1);
    return html`<rect x="${x}" y="${(height - length).toFixed(1)}" width="${Math.max(1, step - gap).toFixed(1)}" height="${length.toFixed(1)}"><title>${label}: ${text(value)}</title></rect>`;
  });
  const peak = Math.max(0, ...values.map(({ value }) => value));
  const last = values.at(-1);
  const summary = last && peak > 0 ? `${text(last.value)} today, at most ${text(peak)}` : 'none';
  return html`<figure class="plot"><figcaption>${name} <span class="hint">${summary}</span></figcaption>
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

/** One line of time with a lane for each kind. The table below it says the same in words. */
export function timeline(moments: readonly Moment[], lanes: readonly string[]): Html {
  const now = Date.now();
  const first = Math.min(now - 86_400_000, ...moments.map(({ at }) => Date.parse(at)));
  const x = (at: number): string => (8 + ((at - first) / (now - first)) * (lane.width - 16)).toFixed(1);
  const rows = lanes.map((name, row) => {
    const y = row * lane.height + lane.height / 2;
    const marks = moments
      .filter(moment => moment.lane === name)
      .map(({ at, text, isBad }) => {
        const title = html`<title>${utc(at)}: ${text}</title>`;
        const cx = x(Date.parse(at));
        return isBad
          ? html`<path class="bad" d="M${Number(cx) - 5} ${y - 5}l10 10m0 -10l-10 10">${title}</path>`
          : html`<circle cx="${cx}" cy="${y}" r="4">${title}</circle>`;
      });
    return html`<line x1="0" x2="${lane.width}" y1="${y}" y2="${y}"/>${marks}`;
  });
  const days = Math.ceil((now - first) / 86_400_000);
  return html`<figure class="timeline"><div class="lanes" aria-hidden="true">${lanes.map(name => html`<span>${name}</span>`)}</div>
<svg viewBox="0 0 ${lane.width} ${lanes.length * lane.height}" role="img" aria-label="Line of time of the last ${days} days; the table below has its ${moments.length} events">${rows}</svg>
${ends(first)}</figure>`;
}

/** The moments that can be restored: the archives, and until when each one is known to be the present data. */
export function rangeBar(
  ranges: readonly { readonly from: string; readonly to: string; readonly isBad: boolean }[],
): Html {
  const now = Date.now();
  const first = Math.min(now - 86_400_000, ...ranges.map(({ from }) => Date.parse(from)));
  const x = (at: string): number => ((Date.parse(at) - first) / (now - first)) * lane.width;
  const bars = ranges.map(({ from, to, isBad }) => {
    const title = html`<title>${utc(from)} to ${utc(to)}</title>`;
    return html`<rect class="${isBad ? 'bad' : ''}" x="${x(from).toFixed(1)}" y="3" width="${Math.max(3, x(to) - x(from)).toFixed(1)}" height="18">${title}</rect>`;
  });
  return html`<figure class="timeline range"><svg viewBox="0 0 ${lane.width} 24" role="img" aria-label="Archives on a line of time; the table below has them">
<line x1="0" x2="${lane.width}" y1="12" y2="12"/>${bars}</svg>${ends(first)}</figure>`;
}

/** What stands below a line of time. */
function ends(first: number): Html {
  return html`<figcaption><span>${new Date(first).toISOString().slice(0, 10)}</span><span>now</span></figcaption>`;
}
