import { OperatorError } from '../../../lib/log/operator-error.ts';
import { readTime } from '../../../lib/runtime/time-text.ts';

/** A time in the past. */
interface Moment {
  readonly date: Date;
  /**
   * To the microsecond, in the form that PostgreSQL and its tools write: `2026-11-21
   * 14:05:00.000000+00`.
   */
  readonly text: string;
}

const hasZone = /^\s*\d{4}-\d\d-\d\d[T ]\d\d:\d\d\S*(Z|[+-]\d\d(:?\d\d)?)\s*$/i;

/** @throws {OperatorError} unless the text is a time with a zone, in the past */
export function parseMoment(text: string): Moment {
  const date = readTime(text);
  if (!date) {
    throw new OperatorError(
      hasZone.test(text)
        ? `${text} is no day of the calendar, or no time of the day`
        : 'Give the moment with its zone: 2026-11-21T14:05:00Z, or 2026-11-21T15:05:00+01:00',
      { usage: true },
    );
  }
  if (date.getTime() > Date.now()) {
    throw new OperatorError(`${text} is in the future`, { usage: true });
  }

  const fraction = (/[.,](\d+)/.exec(text)?.[1] ?? '').slice(0, 6).padEnd(6, '0');
  return { date, text: `${date.toISOString().slice(0, 19).replace('T', ' ')}.${fraction}+00` };
}
