import { type IpAddress, parseIpAddress } from '../../config/ip-address.ts';

/** A header in which proxies name the addresses of their clients: each adds one at the end. */
export type ForwardedHeader = 'x-forwarded-for' | 'forwarded';

/**
 * Yields the elements of a list, the rightmost first. It reads from the right, because the text
 * to the left is the client's: a quotation mark there that nothing closes cannot swallow the
 * elements that proxies have added.
 *
 * An empty element is an element, although RFC 9110 §5.6.1 lets a recipient ignore it: a proxy
 * that adds nothing would otherwise make the text of its client count.
 */
export function* elementsFromRight(list: string): Generator<string> {
  let end = list.length;
  let isQuoted = false;

  for (let at = end - 1; at >= 0; at--) {
    const character = list[at];
    if (character === '"' && !(isQuoted && isEscaped(list, at))) {
      isQuoted = !isQuoted;
    } else if (character === ',' && !isQuoted) {
      yield list.slice(at + 1, end);
      end = at;
    }
  }

  yield list.slice(0, end);
}

/** True if an odd number of backslashes stands before a character of a quoted string. */
function isEscaped(text: string, at: number): boolean {
  let start = at;
  while (text[start - 1] === '\\') start--;
  return (at - start) % 2 === 1;
}

/**
 * Parses the address in an element of a header; undefined when it has none, as `unknown`, a
 * hidden name (`_gateway`) and an empty element.
 */
export function parseElement(header: ForwardedHeader, element: string): IpAddress | undefined {
  const text = element.replace(/^[ \t]+|[ \t]+$/g, '');
  return parseNode(header === 'forwarded' ? forParameter(text) : unquote(text));
}

const quoted = /^"((?:[^"\\]|\\.)*)"$/s;

function unquote(text: string): string {
  return quoted.exec(text)?.[1]?.replace(/\\(.)/gs, '$1') ?? text;
}

/**
 * A pair of `Forwarded` (RFC 7239 §4), and the semicolon behind it. The value may be an address
 * with a port, and white space may surround the pair: proxies write both, against the RFC.
 */
const pair = /[ \t]*(?:([\w!#$%&'*+.^`|~-]+)=("(?:[^"\\]|\\.)*"|[^\s",;]*)[ \t]*)?(?:;|$)/sy;

/**
 * Returns the parameter `for` of an element of `Forwarded`; an empty text when the element has
 * none, has two, or is malformed.
 */
function forParameter(element: string): string {
  const found: string[] = [];
  pair.lastIndex = 0;

  while (pair.lastIndex < element.length) {
    const match = pair.exec(element);
    if (!match) return '';

    const [, name, value = ''] = match;
    if (name?.toLowerCase() === 'for') found.push(unquote(value));
  }

  return found.length === 1 ? found[0]! : '';
}

/** A port, or the hidden name of one (RFC 7239 §6). */
const port = ':(?:\\d{1,5}|_[\\w.-]+)';
const inBrackets = new RegExp(`^\\[([^[\\]]*:[^[\\]]*)\\](?:${port})?$`);
const version4 = new RegExp(`^([\\d.]+)(?:${port})?$`);
/** `fe80::1%eth0`, or `fe80::1%25eth0` as in URLs. */
const withZone = /^([^%]*:[^%]*)%[\w.~-]{1,64}$/;

/**
 * Parses an address with or without a port: `203.0.113.8:49152`, `[2001:db8::1]:443`. A zone is
 * left out: only the machine that wrote it knows the zone.
 */
function parseNode(node: string): IpAddress | undefined {
  const address = inBrackets.exec(node)?.[1] ?? version4.exec(node)?.[1] ?? node;
  return parseIpAddress(withZone.exec(address)?.[1] ?? address);
}
