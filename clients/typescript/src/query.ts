/** The filters of a query, with null for each field of which records may have no value. */
export type WithNull<Query> = Query extends { filter?: infer Filter }
  ? Omit<Query, 'filter'> & {
      filter?:
        | { [Field in keyof Filter]: Filter[Field] | NullOf<Query, Field & string> | undefined }
        | undefined;
    }
  : Query;

/** Null if a field can be compared with it. */
type NullOf<Query, Field extends string> = Query extends {
  [Name in `filter[${Field}]`]?: { null?: boolean };
}
  ? 'null' extends keyof NonNullable<Query[`filter[${Field}]` & keyof Query]>
    ? null
    : never
  : never;

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
