/** `CountryCode` → `countryCode`, `IPAddress` → `ipAddress`, `Id` → `id`. */
export function camelCase(name: string): string {
  return name.replace(/^[A-Z]+(?=[A-Z][a-z]|$)|^[A-Z]/, capitals => capitals.toLowerCase());
}

/** `countryCode` → `CountryCode`. */
export function pascalCase(name: string): string {
  return name.charAt(0).toUpperCase() + name.slice(1);
}

/** `createdAt` → `created_at`, the column name that MikroORM derives from a property. */
export function snakeCase(property: string): string {
  return property.replace(/[A-Z]/g, capital => `_${capital.toLowerCase()}`);
}

/** The fields of a request body as properties of an entity; a field that was not sent is left out. */
export function toRow(fields: Record<string, unknown>): Record<string, unknown> {
  const sent = Object.entries(fields).filter(([, value]) => value !== undefined);
  return Object.fromEntries(sent.map(([name, value]) => [camelCase(name), value]));
}
