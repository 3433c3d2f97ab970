import { OperatorError } from '../../log/operator-error.ts';
import { beginsWithCalendarDay } from './calendar-day.ts';

const units: Readonly<Record<string, number>> = { m: 60_000, h: 3_600_000, d: 86_400_000 };

/** Parses the value of an option that is a time, or how long ago it was. @returns the time in ISO 8601 */
export function parseTime(value: string): string {
  const [, number, unit = ''] = /^(\d{1,5})([mhd])$/.exec(value) ?? [];
  const time = number === undefined ? new Date(value) : new Date(Date.now() - Number(number) * (units[unit] ?? 0));
  if (Number.isNaN(time.getTime()) || (number === undefined && !beginsWithCalendarDay(value)))
    throw new OperatorError('Give a time such as 2026-11-22T14:00Z, or 90m, 12h, 7d.');
  return time.toISOString();
}
