import { z } from 'zod';

/** int in a request or an answer: −2³¹ … 2³¹−1. A string of digits is not a number. */
export const int32 = () => z.int32();

/** A long id: 1 … 2⁵³−1, so that it is exact as a JSON number. */
export const longId = () => z.int().min(1).max(Number.MAX_SAFE_INTEGER);

/** A moment: ISO-8601 in UTC, as it is always written in an answer. */
export const timestamp = () => z.iso.datetime();

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
