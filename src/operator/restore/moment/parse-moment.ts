import { OperatorError } from '../../../operator-error.ts';
import { beginsWithCalendarDay } from '../../calendar-day.ts';

/** @throws {OperatorError} unless the text is a time with a zone, in the past */
export function parseMoment(text: string): Date {
  const isTime = /^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d(:?\d\d)?)$/.test(text);
  const moment = new Date(text.replace(' ', 'T').replace(/([+-]\d\d)$/, '$1:00'));
  if (!isTime || Number.isNaN(moment.getTime()))
    throw new OperatorError('Give the moment with its zone: 2026-11-21T14:05:00Z, or 2026-11-21T15:05:00+01:00', {
      usage: true,
    });
  if (!beginsWithCalendarDay(text)) throw new OperatorError(`${text} is no day of the calendar`, { usage: true });
  if (moment.getTime() > Date.now()) throw new OperatorError(`${text} is in the future`, { usage: true });
  return moment;
}
