import { OperatorError } from '../../lib/log/operator-error.ts';
import { readTime } from '../../lib/runtime/time-text.ts';

const hasZone = /^\s*\d{4}-\d\d-\d\d[T ]\d\d:\d\d\S*(Z|[+-]\d\d(:?\d\d)?)\s*$/i;

/**
 * Reads a time of the past.
 * @returns it to the microsecond, in the form of PostgreSQL and its tools: `2026-11-21
 *   14:05:00.000000+00`
 * @throws {OperatorError} unless the text is a time with a zone, in the past
 */
export function parseMoment(text: string): string {
  const date = readTime(text);
  if (!date) {
    throw new OperatorError(
      hasZone.test(text)
        ? `${text} is no day of the calendar, or no time of the day`
        : 'Give the time with its zone: 2026-11-21T14:05:00Z, or 2026-11-21T15:05:00+01:00',
      { usage: true },
    );
  }
  if (date.getTime() > Date.now()) {
    throw new OperatorError(`${text} is in the future`, { usage: true });
  }

  const fraction = (/[.,](\d+)/.exec(text)?.[1] ?? '').slice(0, 6).padEnd(6, '0');
  return `${date.toISOString().slice(0, 19).replace('T', ' ')}.${fraction}+00`;
}
