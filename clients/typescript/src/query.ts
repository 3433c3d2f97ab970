/**
 * A query as `writeQuery` takes it: each field of the filter with a value or several, with its
 * operators, or with null if records may have no value. Operators may also stand beside the
 * filter, under `filter[Field]`.
 */
export type WithConditions<Query> = Query extends Filtered
  ? Omit<Query, `filter[${string}]`> & {
      filter?:
        | {
            [Field in FilteredFields<Query>]?: Condition<
              ValueOf<Query, Field>,
              OperatorsOf<Query, Field>
            >;
          }
        | undefined;
    } & {
      [Field in FilteredFields<Query> as `filter[${Field}]`]?:
        | OperatorsOf<Query, Field>
        | undefined;
    }
  : Query;

/** The parameters of a list: every list has `sort`, and takes filters. */
interface Filtered {
  sort?: unknown;
}

/** The fields of the parameters `filter[Field]`, which those with operators have, too. */
type FilteredFields<Query> = keyof Query extends infer Name
  ? Name extends `filter[${infer Field}]`
    ? Field extends `${string}]${string}`
      ? never
      : Field
    : never
  : never;

/** The conditions of one field. */
type Condition<Value, Operators> =
  | Value
  | Iterable<Value>
  | Operators
  | ('null' extends keyof Operators ? null : never)
  | undefined;

/** A value of a field; a time may be a Date. */
type ValueOf<Query, Field extends string> = Query extends {
  [Name in `filter[${Field}]`]?: infer Values;
}
  ?
      | (NonNullable<Values> extends readonly (infer Value)[] ? Value : never)
      | (Date extends OperatorsOf<Query, Field>[keyof OperatorsOf<Query, Field>] ? Date : never)
  : never;

/** The operators of a field, never if it has none; a time may be a Date. */
type OperatorsOf<Query, Field extends string> =
  OperatorNames<keyof Query, Field> extends never
    ? never
    : Timed<{
        [Name in keyof Query as OperatorNames<Name, Field>]?: Query[Name];
      }>;

type OperatorNames<Name, Field extends string> = Name extends `filter[${Field}][${infer Operator}]`
  ? Operator
  : never;

/** Of the texts that are compared, times are those without a prefix. */
type Timed<Operators> = 'prefix' extends keyof Operators
  ? Operators
  : {
      [Name in keyof Operators]: Operators[Name] | (string extends Operators[Name] ? Date : never);
    };

/**
 * Writes the parameters of a query as the service reads them: values of a list separated by
 * commas, fields of a filter as `filter[Name]=value`, and once for each of several values.
 * @throws {RangeError} for a filter without a value, which would find all records
 */
export function writeQuery(query: object): string {
  return Object.entries(query)
    .flatMap(([name, value]) =>
      /^filter\b/.test(name) ? writeFilter(name, value) : writeParameter(name, value),
    )
    .join('&');
}

function writeParameter(name: string, value: unknown): string[] {
  if (value === undefined || value === null) return [];
  if (!Array.isArray(value)) return [`${name}=${encode(value)}`];

  return value.length > 0 ? [`${name}=${value.map(encode).join(',')}`] : [];
}

/**
 * Writes a condition. Undefined is none; null is met by the records without a value.
 * @throws {RangeError} for a list that no value can be in, and for null where it means nothing
 */
function writeFilter(name: string, value: unknown): string[] {
  if (value === undefined) return [];
  if (value === null) return [`${fieldOf(name)}[null]=true`];
  if (value instanceof Date) return [`${name}=${encode(value.toISOString())}`];
  if (typeof value !== 'object') return [`${name}=${encode(value)}`];
  if (!(Symbol.iterator in value)) {
    return Object.entries(value).flatMap(([field, each]) => writeFilter(`${name}[${field}]`, each));
  }

  const values = [...(value as Iterable<unknown>)];
  if (values.length === 0) throw new RangeError(`${name} has an empty list: no record matches it`);
  if (values.some(each => each === undefined || each === null)) {
    throw new RangeError(`${name} has a list with null or undefined`);
  }

  return values.flatMap(each => writeFilter(name, each));
}

/**
 * Returns the name of a field that may be compared with null.
 * @throws {RangeError} for an operator of a field, and for the filter as a whole
 */
function fieldOf(name: string): string {
  if (/^filter\[[^\]]+\]$/.test(name)) return name;
  throw new RangeError(`${name} is null`);
}

const encode = (value: unknown): string => encodeURIComponent(String(value));
