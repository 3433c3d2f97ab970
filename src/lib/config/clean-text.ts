/**
 * Returns a value as its author means it, without what editors, shells and `--env-file` leave
 * around it: a byte order mark, white space, and a pair of quotes.
 */
export function cleanText(text: string): string {
  const bare = text.replace(/^\uFEFF/, '').trim();
  const [, quote = '', quoted = ''] = /^(["'])(.*)\1$/s.exec(bare) ?? [];
  return quote && !quoted.includes(quote) ? quoted.trim() : bare;
}
