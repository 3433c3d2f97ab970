/**
 * Converts to camelCase: `CountryCode` → `countryCode`, `IPAddress` → `ipAddress`, `Id` → `id`.
 */
export function camelCase(name: string): string {
  return name.replace(/^[A-Z]+(?=[A-Z][a-z]|$)|^[A-Z]/, capitals => capitals.toLowerCase());
}

/** Converts camelCase to PascalCase: `countryCode` → `CountryCode`. */
export function pascalCase(name: string): string {
  return name.charAt(0).toUpperCase() + name.slice(1);
}

/**
 * Converts a property name to the column name that MikroORM derives from it: `createdAt` →
 * `created_at`.
 */
export function snakeCase(property: string): string {
  return property.replace(/[A-Z]/g, capital => `_${capital.toLowerCase()}`);
}

/**
 * The properties of the fields that were converted: a regular expression in each request would
 * cost more than the rest of the conversion.
 */
const properties = new Map<string, string>();

/**
 * Converts the fields of a request body to the properties of an entity, without the fields that
 * were not sent.
 * @param fields those of a contract, so that their names are of a bounded number
 */
export function toRow(fields: Record<string, unknown>): Record<string, unknown> {
  const row: Record<string, unknown> = {};

  for (const [name, value] of Object.entries(fields)) {
    if (value !== undefined) {
      row[propertyOf(name)] = value;
    }
  }

  return row;
}

function propertyOf(field: string): string {
  let property = properties.get(field);

  if (property === undefined) {
    property = camelCase(field);
    properties.set(field, property);
  }

  return property;
}
