import type { z } from 'zod';
import { camelCase } from '../casing.ts';
import { type FieldErrors, problem } from '../errors.ts';

/**
 * Reads the fields of a contract from a parsed JSON body: each by its own name or by its name in camelCase, everything
 * else ignored.
 * @throws {Problem} `validation_failed`, naming every field that is wrong
 */
export function readFields<Shape extends z.ZodRawShape>(
  contract: z.ZodObject<Shape>,
  body: object,
): z.output<z.ZodObject<Shape>> {
  const errors: FieldErrors = {};
  const named: Record<string, unknown> = {};
  const given = body as Record<string, unknown>;
  for (const name of Object.keys(contract.shape)) {
    const spellings = [...new Set([name, camelCase(name)])].filter(spelling => Object.hasOwn(given, spelling));
    const [first, second] = spellings;
    if (first === undefined) continue;
    if (second !== undefined && !isSame(given[first], given[second])) {
      errors[name] = [`is given twice with different values, as ${first} and ${second}`];
    }
    named[name] = given[first];
  }
  return check(contract, named, errors);
}

/**
 * Reads the parameters of a query string that a route knows; others are ignored. Each may stand there once.
 * @throws {Problem} `validation_failed`, naming every parameter that is wrong
 */
export function readQuery<Shape extends z.ZodRawShape>(
  parameters: z.ZodObject<Shape>,
  search: URLSearchParams,
): z.output<z.ZodObject<Shape>> {
  const errors: FieldErrors = {};
  const named: Record<string, unknown> = {};
  for (const name of Object.keys(parameters.shape)) {
    const values = search.getAll(name);
    const bracketed = [...search.keys()].some(key => key.startsWith(`${name}[`));
    if (values.length > 1 || bracketed) errors[name] = ['must be given once, as a plain value'];
    if (values.length > 0) named[name] = values[0];
  }
  return check(parameters, named, errors);
}

function check<Shape extends z.ZodRawShape>(
  contract: z.ZodObject<Shape>,
  named: Record<string, unknown>,
  errors: FieldErrors,
): z.output<z.ZodObject<Shape>> {
  const parsed = contract.safeParse(named);
  for (const issue of parsed.error?.issues ?? []) {
    const field = String(issue.path[0] ?? '');
    errors[field] ??= [message(issue, named[field])];
  }
  if (!parsed.success || Object.keys(errors).length > 0) throw problem('validation_failed', { errors });
  return parsed.data;
}

/** Fields are scalars or lists of them; what nests deeper is wrong anyway, and is not walked: it may be very deep. */
function isSame(one: unknown, other: unknown): boolean {
  if (!Array.isArray(one) || !Array.isArray(other)) return one === other;
  return one.length === other.length && one.every((item, index) => item === other[index]);
}

/** What is wrong with a value, without repeating the value. */
function message(issue: z.core.$ZodIssue, given: unknown): string {
  if (given === undefined) return 'is required';
  switch (issue.code) {
    case 'invalid_type':
      return issue.expected === 'int' ? 'must be a whole number' : `must be of type ${issue.expected}`;
    case 'too_small':
      return `must be ${issue.inclusive ? 'at least' : 'more than'} ${issue.minimum}`;
    case 'too_big':
      return `must be ${issue.inclusive ? 'at most' : 'less than'} ${issue.maximum}`;
    case 'invalid_value':
      return `must be one of ${issue.values.join(', ')}`;
    case 'invalid_format':
      return 'is not in the right format';
    default:
      return issue.message;
  }
}
