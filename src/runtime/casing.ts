/** Converts to camelCase: `CountryCode` → `countryCode`, `IPAddress` → `ipAddress`, `Id` → `id`. */
export function camelCase(name: string): string {
  return name.replace(/^[A-Z]+(?=[A-Z][a-z]|$)|^[A-Z]/, capitals => capitals.toLowerCase());
}

/** Converts camelCase to PascalCase: `countryCode` → `CountryCode`. */
export function pascalCase(name: string): string {
  return name.charAt(0).toUpperCase() + name.slice(1);
}

/** Converts a property name to the column name that MikroORM derives from it: `createdAt` → `created_at`. */
export function snakeCase(property: string): string {
  return property.replace(/[A-Z]/g, capital => `_${capital.toLowerCase()}`);
}

/** Converts the fields of a request body to the properties of an entity, without the fields that were not sent. */
export function toRow(fields: Record<string, unknown>): Record<string, unknown> {
  const sent = Object.entries(fields).filter(([, value]) => value !== undefined);
  return Object.fromEntries(sent.map(([name, value]) => [camelCase(name), value]));
}
