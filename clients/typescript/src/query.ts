/**
 * Writes the parameters of a query as the service reads them: values of a list separated by commas, fields of an
 * object as `filter[Name]=value`.
 */
export function writeQuery(query: object): string {
  return Object.entries(query).flatMap(writeParameter).join('&');
}

function writeParameter([name, value]: [string, unknown]): string[] {
  if (value === undefined || value === null) return [];
  if (Array.isArray(value)) return value.length > 0 ? [`${name}=${value.map(encode).join(',')}`] : [];

  if (typeof value === 'object') {
    return Object.entries(value).flatMap(([field, each]) => writeParameter([`${name}[${field}]`, each]));
  }

  return [`${name}=${encode(value)}`];
}

const encode = (value: unknown): string => encodeURIComponent(String(value));
