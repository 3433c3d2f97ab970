/**
 * Writes the parameters of a query as the service reads them: values of a list separated by
 * commas, fields of an object as `filter[Name]=value`, and once for each of several values.
 */
export function writeQuery(query: object): string {
  return Object.entries(query).flatMap(writeParameter).join('&');
}

function writeParameter([name, value]: [string, unknown]): string[] {
  if (value === undefined || value === null) return [];
  if (Array.isArray(value)) {
    return value.length > 0 ? [`${name}=${value.map(encode).join(',')}`] : [];
  }
  if (typeof value !== 'object') return [`${name}=${encode(value)}`];

  return Object.entries(value).flatMap(([field, each]) =>
    [each].flat().flatMap(one => writeParameter([`${name}[${field}]`, one])),
  );
}

const encode = (value: unknown): string => encodeURIComponent(String(value));
