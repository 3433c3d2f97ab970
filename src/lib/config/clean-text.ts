/**
 * Returns a value as its author means it, without what editors, shells and `--env-file` leave
 * around it: byte order marks, white space, invisible characters, and a pair of quotes.
 */
export function cleanText(text: string): string {
  const bare = text.replace(/^[\s\p{Cf}]+|[\s\p{Cf}]+$/gu, '');
  const [, quote = '', quoted = ''] = /^(["'])(.*)\1$/s.exec(bare) ?? [];
  return quote && !quoted.includes(quote) ? quoted.trim() : bare;
}
