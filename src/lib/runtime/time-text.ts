/**
 * A time as programs write it: `2026-01-31T12:00Z` (Java), `2026-01-31T12:00:00+0000` (PHP). A
 * space before an offset is the `+` of a query that nobody has encoded as `%2B` (WHATWG URL
 * §5.1): no other text has this form.
 */
const isoTime =
  /^(\d{4}-\d\d-\d\dT\d\d:\d\d)(:\d\d(?:[.,]\d+)?)?(Z|[+-]\d\d(?::?\d\d)?| \d\d:?\d\d)$/i;

/**
 * Returns the one form of RFC 3339 of a time in a form of ISO 8601; other texts as they are.
 */
export function toRfc3339(text: string): string {
  const [, minute, second = ':00', written = ''] = isoTime.exec(text) ?? [];
  if (minute === undefined) return text;
  const zone = written.replace(' ', '+');
  const offset = /^[+-]/.test(zone)
    ? `${zone.slice(0, 3)}:${zone.slice(3).replace(':', '') || '00'}`
    : zone;

  return `${minute}${second.replace(',', '.')}${offset}`.toUpperCase();
}

/**
 * Returns a time with `T` in place of the space that databases print; other texts as they are.
 */
export function withT(text: string): string {
  return text.trim().replace(/^(\d{4}-\d\d-\d\d) (?=\d)/, '$1T');
}

/**
 * Reads a time that a command names: in the forms that requests have, with a space in place of
 * `T`, as psql prints it.
 * @returns undefined for any other text, such as a time without its zone, or 30 February
 */
export function readTime(text: string): Date | undefined {
  const spelled = withT(text);
  const [day] = /^\d{4}-\d\d-\d\d/.exec(spelled) ?? [];
  const time = toRfc3339(spelled);
  if (day === undefined || !isoTime.test(time)) return undefined;

  const midnight = new Date(`${day}T00:00:00Z`);
  const isDay = !Number.isNaN(midnight.getTime()) && midnight.toISOString().startsWith(day);
  const date = new Date(time);
  return isDay && !Number.isNaN(date.getTime()) ? date : undefined;
}
