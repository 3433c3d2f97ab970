/**
 * Returns a value as its author means it: without the byte order mark, the white space, and the
 * pair of quotes that editors, shells and `--env-file` leave around it.
 */
export function cleanText(text: string): string {
  const bare = text.replace(/^\uFEFF/, '').trim();
  const [, quote = '', quoted = ''] = /^(["'])(.*)\1$/s.exec(bare) ?? [];
  return quote && !quoted.includes(quote) ? quoted.trim() : bare;
}
