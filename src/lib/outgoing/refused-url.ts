import { isIP } from 'node:net';
import { domainToUnicode } from 'node:url';
import { isPublicAddress } from './is-public-address.ts';

const publicPorts = new Set(['', '443', '8443']);

/**
 * Returns why nothing is sent to a URL, to complete "the URL …"; undefined for an allowed one.
 * @param isException true for a URL that the operator allows, with any scheme of HTTP, port and
 *   address
 */
export function refusedUrl(text: string, isException: boolean): string | undefined {
  const url = URL.parse(text);
  if (!url || (url.protocol !== 'https:' && url.protocol !== 'http:')) {
    return 'must be an absolute https URL';
  }
  if (/\s/.test(text)) return 'must have no white space';
  if (url.username !== '' || url.password !== '') return 'must have no user name and no password';
  if (url.hash !== '') return 'must have no fragment';
  if (isException) return undefined;
  if (url.protocol === 'http:') return 'must begin with https://';
  if (!publicPorts.has(url.port)) return 'must have port 443 or 8443';

  const address = addressIn(url);
  if (address === undefined ? !isPublicName(url.hostname) : !isPublicAddress(address)) {
    return 'must have a public address';
  }

  return undefined;
}

/**
 * Returns why a URL that somebody types is not taken, to complete "the URL …": its text names
 * another host than the one to which a request would go. A parser of URLs (WHATWG URL §4.4)
 * reads `\` as `/`, adds missing slashes, drops characters that show nothing, and takes letters
 * and numbers of other forms for plain ones. Whoever reads the text, or checks it with a parser
 * by RFC 3986, would then take `https://acme.example\@evil.example` for the other host.
 * @param text a URL that `refusedUrl` allows
 */
export function unclearUrl(text: string): string | undefined {
  const url = URL.parse(text);
  if (!url) return 'must be an absolute URL';

  const [beforeQuery = ''] = text.split('?', 1);
  if (beforeQuery.includes('\\')) return 'must have no backslash';

  const [, host = ''] = /^https?:\/\/([^/?]*)/i.exec(text) ?? [];
  const written = host.toLowerCase().normalize('NFC').replace(standardPort(url), '');
  const read = [url.hostname, domainToUnicode(url.hostname)].map(name =>
    url.port === '' ? name : `${name}:${url.port}`,
  );
  return read.includes(written) ? undefined : `must begin with ${url.origin}`;
}

/** The port that a parser leaves out, at the end of a host. */
function standardPort({ protocol }: URL): RegExp {
  return protocol === 'https:' ? /:443$/ : /:80$/;
}

/**
 * Ends of names that no public address ever has: RFC 6761, RFC 6762, RFC 8375, and `internal`
 * by ICANN.
 */
const privateNames = /(^|\.)(localhost|local|internal|home\.arpa|invalid)$/;

/**
 * False for a name that only a machine itself or its network knows: `localhost`, or one without
 * a full stop.
 */
function isPublicName(hostname: string): boolean {
  const name = hostname.replace(/\.$/, '').toLowerCase();

  return name.includes('.') && !privateNames.test(name);
}

/** The address that stands in a URL in place of a name. */
function addressIn({ hostname }: URL): string | undefined {
  const text = hostname.replace(/^\[|\]$/g, '');
  return isIP(text) ? text : undefined;
}
