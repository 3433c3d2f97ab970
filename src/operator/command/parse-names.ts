/** Parses names that are separated by commas. */
export function parseNames(value: string): string[] {
  return value.split(',').map(name => name.trim());
}
