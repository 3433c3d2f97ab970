/**
 * Returns a thrown value as an error: of a value that is none, the text is the message. `catch`
 * cannot say what was thrown, and the compiler knows it as `unknown`.
 */
export function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown));
}

/**
 * Returns what Node or a package wrote beside the message of an error, such as `syscall`;
 * undefined when it wrote nothing.
 */
export function errorFact(error: unknown, name: string): unknown {
  return error instanceof Error ? Reflect.get(error, name) : undefined;
}

/**
 * Returns the code that Node or a package gave an error, such as `ENOENT`; undefined without
 * one. `sqlState` reads those of databases.
 */
export function codeOf(error: unknown): string | undefined {
  const code = errorFact(error, 'code');
  return typeof code === 'string' ? code : undefined;
}

/** True if a value is a JSON object: neither null nor an array. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** True for a whole number that a double holds exactly. */
export function isInteger(value: unknown): value is number {
  return Number.isSafeInteger(value);
}

/** Returns the keys of a constant record, which has no others than its type. */
export function keysOf<Constant extends object>(record: Constant): (keyof Constant)[] {
  return Object.keys(record) as (keyof Constant)[];
}
