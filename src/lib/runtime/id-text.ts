/**
 * Reads the id of a record in a path, a parameter, a cell or a word of a command: digits,
 * without a sign or zeros before them.
 * @returns undefined for a text that no id has
 */
export function readId(text: string, max = Number.MAX_SAFE_INTEGER): number | undefined {
  if (!/^[1-9][0-9]{0,15}$/.test(text)) return undefined;

  const id = Number(text);
  return id <= max ? id : undefined;
}
