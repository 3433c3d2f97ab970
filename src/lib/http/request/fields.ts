import { z } from 'zod';
import { invalid } from '../../runtime/field-error.ts';
import { readId } from '../../runtime/id-text.ts';
import { toRfc3339 } from '../../runtime/time-text.ts';
import { schemaOf } from '../schema-of.ts';

/**
 * Returns an object schema with a description of each of its fields. The compiler finds a field
 * that has none.
 */
export function describeFields<Shape extends z.ZodRawShape>(
  shape: Shape,
  descriptions: { readonly [Field in keyof Shape]: string },
): z.ZodObject<Shape> {
  return z.object(describeShape(shape, descriptions) as Shape);
}

/**
 * Returns the fields of a schema with their descriptions. A description of another field is
 * ignored.
 */
export function describeShape(
  shape: z.ZodRawShape,
  descriptions: Readonly<Record<string, string>>,
): z.ZodRawShape {
  const described = Object.entries(shape).map(([name, field]) => {
    const description = descriptions[name];
    return [name, description === undefined ? field : schemaOf(field).describe(description)];
  });
  return Object.fromEntries(described);
}

export const maxInt32 = 2 ** 31 - 1;

/**
 * An int: −2³¹ … 2³¹−1. A string of digits is not a number. (`z.int32` names another bound to
 * numbers beyond 2⁵³.)
 */
export const int32 = () =>
  z
    .number()
    .min(-maxInt32 - 1)
    .max(maxInt32)
    .int();

/** An int id: 1 … 2³¹−1. */
export const intId = () => int32().min(1);

/** A count in a response: 0 … 2³¹−1. */
export const intCount = () => int32().min(0);

/** A long id: 1 … 2⁵³−1, the range in which every JSON number is exact. */
export const longId = () => z.int().min(1).max(Number.MAX_SAFE_INTEGER);

/** A GUID in a response. */
export const guid = () => z.string().meta({ format: 'uuid' });

/** A time in a response: always ISO 8601 in UTC. */
export const timestamp = () => z.iso.datetime();

/**
 * A time in a request: ISO 8601 with `Z` or an offset, in the years 1 to 9999. Stored to the
 * millisecond.
 */
export const moment = () =>
  z
    .string()
    .overwrite(toRfc3339)
    .meta({ format: 'date-time' })
    .pipe(z.iso.datetime({ offset: true }))
    .refine(
      value => new Date(value).getUTCFullYear() >= 1 && new Date(value).getUTCFullYear() <= 9_999,
      invalid('is out of range', 'out_of_range'),
    )
    .transform(value => new Date(value));

interface DecimalOptions {
  min: number;
  max: number;
  /** The scale of the column. Default 4. */
  decimals?: number;
}

/** A number with at most so many decimals that the stored value equals the sent value. */
export const decimal = ({ min, max, decimals = 4 }: DecimalOptions) =>
  z
    .number()
    .min(min)
    .max(max)
    .refine(
      value => Number(value.toFixed(decimals)) === value,
      invalid(`must have at most ${decimals} decimals`, 'wrong_format'),
    );

/**
 * The `limit` parameter of a list: at least 1, by default 20. A value above `max` counts as
 * `max`.
 */
export const limit = (max = 1_000) =>
  z
    .string()
    .regex(/^[1-9][0-9]*$/, 'must be a whole number above 0')
    .transform(digits => Math.min(Number(digits), max))
    .default(20);

/** A long id in a query string. */
export const queryId = () =>
  z
    .string()
    .refine(text => readId(text) !== undefined, invalid('must be an id', 'wrong_format'))
    .transform(Number)
    .optional();

/**
 * The `meta` of a query parameter whose text is a list with commas. A client may also send it
 * several times: `readParameters` joins the values.
 */
export const commaList = { isCommaList: true };

/** True for a query parameter with the `meta` of `commaList`. */
export function isCommaList(field: z.ZodType): boolean {
  return field.meta()?.isCommaList === true;
}

/** `true` or `false` in a query string. */
export const flag = (byDefault = false) =>
  z
    .enum(['true', 'false'])
    .transform(value => value === 'true')
    .default(byDefault);

/**
 * True unless a text has only white space and characters that show nothing, such as a zero
 * width space, or the empty pattern of Braille (U+2800), which Unicode counts as a symbol.
 */
function isVisible(text: string): boolean {
  return !/^[\p{White_Space}\p{Default_Ignorable_Code_Point}\p{Cf}\u2800]*$/u.test(text);
}

/**
 * Returns the one form in which texts are stored, and in which they are looked for: trimmed,
 * Unicode form C.
 */
export function normalText(text: string): string {
  return text.trim().normalize('NFC');
}

/**
 * A code, which stands in paths: `.` and `..` are steps there, which every client resolves (RFC
 * 3986 §5.2.4). With a character that shows nothing, such as a zero width space of a page from
 * which it was copied, it would look like another code, and nobody who types it would find it.
 */
export const code = () =>
  text({ max: lengths.code })
    .refine(
      value => value !== '.' && value !== '..',
      invalid('must not be . or .., which no path can have', 'wrong_format'),
    )
    .refine(
      value => !/\p{Default_Ignorable_Code_Point}/u.test(value),
      invalid('must not contain characters that show nothing', 'invalid_text'),
    );

/** The format of codes. Only lists use it: the OpenAPI document does not have it. */
export const codeFormat = 'code';

/** A code in a response. A list finds it in any letter case, as a path does. */
export const storedCode = () => z.string().meta({ format: codeFormat });

/**
 * Characters that no stored text contains. Tab and line feed are not among them, because texts
 * of several lines have them.
 */
export const controlCharacters = /(?![\t\n])\p{Cc}/u;

interface TextOptions {
  /** Maximum length in Unicode code points. */
  max: number;
  /** True if tabs and line feeds are allowed. */
  multiline?: boolean;
}

/**
 * A string that is not empty: trimmed, in Unicode normalisation form C, without control
 * characters. A string of white space counts as empty.
 */
export const text = (options: TextOptions) =>
  optionalText(options)
    .refine(isVisible, invalid('must not be empty', 'empty'))
    .meta({ minLength: 1, maxLength: options.max });

/** Like `text`, but may be empty. */
export const optionalText = ({ max, multiline = false }: TextOptions) => {
  // Rejects control characters (Unicode category Cc), except tab and line feed in multi-line
  // text.
  const forbidden = multiline ? controlCharacters : /\p{Cc}/u;
  return z
    .string()
    .overwrite(value => value.trim())
    .refine(value => value.isWellFormed(), invalid('must be well-formed Unicode', 'invalid_text'))
    .refine(
      value => !forbidden.test(value),
      invalid('must not contain control characters', 'invalid_text'),
    )
    .overwrite(value => value.normalize('NFC'))
    .refine(
      value => codePoints(value) <= max,
      invalid(`must be at most ${max} characters long`, 'too_long', { max }),
    )
    .meta({ maxLength: max });
};

/** Maximum lengths of codes, names and free texts, in code points. */
export const lengths = { code: 50, name: 255, longText: 4_000, ipAddress: 45, email: 254 };

function codePoints(value: string): number {
  if (value.length > 1_000_000) return value.length;
  let count = 0;
  for (const _ of value) count++;
  return count;
}
