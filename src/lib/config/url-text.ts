/**
 * Returns the reason why a text cannot be a URL of a server, as the continuation of a sentence
 * that begins with the name of the setting; undefined if it may be one. A text that programs
 * would read in different ways is refused. The reason has no part of the text, which may hold a
 * password.
 * @param schemes such as `redis://`
 */
export function urlFault(text: string, schemes: readonly string[]): string | undefined {
  const lower = text.toLowerCase();
  if (!schemes.some(scheme => lower.startsWith(scheme))) {
    return `must be a URL that begins with ${schemes.join(' or ')}`;
  }
  if (/[\s\p{Cc}]/u.test(text)) return 'has a space or a line break in it: write a space as %20';
  if (/\p{Cf}/u.test(text)) return 'has an invisible character in it: type it anew';
  if (text.includes('\uFFFD')) return 'has a letter that is not UTF-8: percent-encode it as UTF-8';
  if (text.includes('#')) return 'has a # in it: write it as %23';
  if (!canDecode(text)) return 'has a % that does not begin an encoded letter: write it as %25';
  return undefined;
}

/**
 * Returns the `urlFault` of a URL that WHATWG's parser reads: with one host, and a number as
 * the port.
 */
export function serverUrlFault(text: string, schemes: readonly string[]): string | undefined {
  const fault = urlFault(text, schemes);
  if (fault) return fault;

  const authority = text.replace(/^[^:]*:\/\//, '').replace(/[/?].*$/, '');
  if (authority.slice(authority.lastIndexOf('@') + 1).includes(',')) {
    return 'names several hosts: give one';
  }
  const url = URL.parse(text);
  if (!url) return `has a host or a port that is none: ${encodeHint}`;
  if (!url.hostname) return 'names no host';
  return undefined;
}

/** Advice for a password that has letters with a meaning in URLs. */
export const encodeHint =
  'percent-encode what is special in its login: / is %2F, # %23, ? %3F, @ %40';

function canDecode(text: string): boolean {
  try {
    decodeURIComponent(text);
    return true;
  } catch {
    return false;
  }
}
