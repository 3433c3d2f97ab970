import { OperatorError } from '../../log/operator-error.ts';
import { beginsWithCalendarDay } from '../command/operation-fields.ts';

/** A time in the past. */
interface Moment {
  readonly date: Date;
  /** To the microsecond, in the form that PostgreSQL and its tools write: `2026-11-21 14:05:00.000000+00`. */
  readonly text: string;
}

const pattern = /^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.(?<fraction>\d{1,6}))?)?(Z|[+-]\d\d(:?\d\d)?)$/;

/** @throws {OperatorError} unless the text is a time with a zone, in the past */
export function parseMoment(text: string): Moment {
  const match = pattern.exec(text);
  const date = new Date(text.replace(' ', 'T').replace(/([+-]\d\d)$/, '$1:00'));
  if (!match || Number.isNaN(date.getTime()))
    throw new OperatorError('Give the moment with its zone: 2026-11-21T14:05:00Z, or 2026-11-21T15:05:00+01:00', {
      usage: true,
    });
  if (!beginsWithCalendarDay(text)) throw new OperatorError(`${text} is no day of the calendar`, { usage: true });
  if (date.getTime() > Date.now()) throw new OperatorError(`${text} is in the future`, { usage: true });
  const fraction = (match.groups?.fraction ?? '').padEnd(6, '0');
  return { date, text: `${date.toISOString().slice(0, 19).replace('T', ' ')}.${fraction}+00` };
}
