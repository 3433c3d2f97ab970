/** Parses lines of JSON; an empty text has none. */
export function jsonLines(text: string) {
  return text
    .split('\n')
    .filter(Boolean)
    .map(line => JSON.parse(line));
}
