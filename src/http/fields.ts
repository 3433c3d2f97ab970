import { z } from 'zod';

/** int in a request or an answer: −2³¹ … 2³¹−1. A string of digits is not a number. */
export const int32 = () => z.int32();

/** A long id: 1 … 2⁵³−1, so that it is exact as a JSON number. */
export const longId = () => z.int().min(1).max(Number.MAX_SAFE_INTEGER);

/** A moment: ISO-8601 in UTC, as it is always written in an answer. */
export const timestamp = () => z.iso.datetime();

/** A moment in a request: ISO-8601 with `Z` or an offset, between the years 1 and 9999; kept to the millisecond. */
export const moment = () =>
  z.iso
    .datetime({ offset: true })
    .refine(
      value => new Date(value).getUTCFullYear() >= 1 && new Date(value).getUTCFullYear() <= 9_999,
      'is out of range',
    )
    .transform(value => new Date(value));

/** A decimal number with at most four decimals, so that it is stored as it was sent. */
export const decimal = ({ min, max }: { min: number; max: number }) =>
  z
    .number()
    .min(min)
    .max(max)
    .refine(value => Number(value.toFixed(4)) === value, 'must have at most 4 decimals');

/** `limit` of a list: 1 or more, 20 unless given; more than 1,000 counts as 1,000. */
export const limit = () =>
  z
    .string()
    .regex(/^[1-9][0-9]*$/, 'must be a whole number above 0')
    .transform(digits => Math.min(Number(digits), 1_000))
    .default(20);

/** A long id in a query string. */
export const queryId = () =>
  z
    .string()
    .regex(/^[1-9][0-9]{0,15}$/, 'must be an id')
    .transform(Number)
    .refine(Number.isSafeInteger, 'must be an id')
    .optional();

/** `true` or `false` in a query string. */
export const flag = () =>
  z
    .enum(['true', 'false'])
    .transform(value => value === 'true')
    .default(false);

interface TextOptions {
  /** Longest value, in Unicode code points. */
  max: number;
  /** Whether tabs and line feeds may stand in it. */
  multiline?: boolean;
}

/**
 * A string that must hold something: trimmed, in Unicode normalisation form C, without control characters.
 * White space alone counts as empty.
 */
export const text = (options: TextOptions) =>
  optionalText(options)
    .refine(value => value !== '', 'must not be empty')
    .meta({ minLength: 1, maxLength: options.max });

/** The same, but may be empty. */
export const optionalText = ({ max, multiline = false }: TextOptions) => {
  // Control characters (category Cc) are refused, but for tab and line feed in text of many lines.
  const forbidden = multiline ? /(?![\t\n])\p{Cc}/u : /\p{Cc}/u;
  return z
    .string()
    .overwrite(value => value.trim())
    .refine(value => value.isWellFormed(), 'must be well-formed Unicode')
    .refine(value => !forbidden.test(value), 'must not contain control characters')
    .overwrite(value => value.normalize('NFC'))
    .refine(value => codePoints(value) <= max, `must be at most ${max} characters long`)
    .meta({ maxLength: max });
};

/** Longest codes, names and free texts, in code points. */
export const lengths = { code: 50, name: 255, longText: 4_000, ipAddress: 45, email: 254 };

function codePoints(value: string): number {
  if (value.length > 1_000_000) return value.length;
  let count = 0;
  for (const _ of value) count++;
  return count;
}
