const minDays = 30;
const maxYears = 100;
const dayMs = 86_400_000;

/**
 * Checks how long rows are kept: days, months or years, such as `90d`, `18m` or `2y`, or
 * `forever`.
 * @returns the age without spaces and in lower case; undefined for all other text, and for less
 *   than 30 days
 */
export function parseAge(text: string): string | undefined {
  const age = text.trim().toLowerCase();
  if (age === 'forever') return age;
  const [, number, unit] = /^([1-9]\d{0,4})([dmy])$/.exec(age) ?? [];
  if (!number || !unit) return undefined;
  const days = Number(number) * { d: 1, m: 31, y: 366 }[unit as 'd' | 'm' | 'y'];
  return days >= minDays && days <= maxYears * 366 ? age : undefined;
}

/**
 * Returns the moment before which rows have reached an age; undefined for `forever`. It is the
 * beginning of a month in UTC, so that rows are removed by whole months: once a month, rows are
 * removed from a tenant, and one archive of each month has them.
 * @param age as `parseAge` returns it
 */
export function cutoffOf(age: string, now: Date): Date | undefined {
  if (age === 'forever') return undefined;
  const count = Number.parseInt(age, 10);
  const at = age.endsWith('d') ? new Date(now.getTime() - count * dayMs) : now;
  const months = age.endsWith('y') ? count * 12 : age.endsWith('m') ? count : 0;
  return new Date(Date.UTC(at.getUTCFullYear(), at.getUTCMonth() - months, 1));
}
