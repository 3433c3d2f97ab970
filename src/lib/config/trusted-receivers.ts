import { z } from 'zod';

/**
 * A receiver of webhooks that the operator trusts for one tenant: over http or https, at any
 * port, with any address.
 */
export interface TrustedReceiver {
  readonly tenantGuid: string;
  /** Scheme, host and port. */
  readonly origin: string;
  /** The segments of the path: paths below it are trusted, too. */
  readonly segments: readonly string[];
}

const guid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** The guid of a tenant, an equals sign and a URL, separated by commas from others. */
export const trustedReceivers = z.string().transform((text, context): TrustedReceiver[] => {
  const items = text.split(',').map(item => item.trim());
  const receivers = items.filter(Boolean).map(parseReceiver);
  if (receivers.every(receiver => receiver !== undefined)) return receivers;

  context.addIssue(
    'must be a comma-separated list of receivers, each the guid of its tenant, = and a URL with a path, such as ' +
      '0f7c1d3e-5b7a-4c59-9d0e-6a1f2b3c4d5e=http://receiver.example.com:8080/hooks: bin/backoffice show prints the guid',
  );
  return z.NEVER;
});

function parseReceiver(item: string): TrustedReceiver | undefined {
  const [, tenantGuid = '', text = ''] = /^([^=]*)=(.*)$/.exec(item) ?? [];
  const url = URL.parse(text);
  const segments = plainSegments(text);
  if (!guid.test(tenantGuid) || !url || !segments) return undefined;
  // Each of these would promise a bound that nothing checks.
  if (/[\s?#]/.test(text) || url.username !== '' || url.password !== '') return undefined;

  // Without a slash, nobody has said that all paths are meant.
  return /^\w+:\/\/[^/]+\//.test(text)
    ? { tenantGuid: tenantGuid.toLowerCase(), origin: url.origin, segments }
    : undefined;
}

/**
 * Returns the decoded segments of the path in the text of an http URL, without an empty last
 * one; undefined when a receiver or a proxy before it may read the path in another way than by
 * these segments: it has a backslash, a dot segment, a slash or a dot segment in an encoding,
 * or what does not decode.
 */
export function plainSegments(text: string): string[] | undefined {
  const [, path] = /^https?:\/\/[^/\\?#]+([^?#]*)/i.exec(text) ?? [];
  if (path === undefined || path.includes('\\')) return undefined;

  const segments = path.split('/').slice(1).map(decodeSegment);
  if (!segments.every(segment => segment !== undefined)) return undefined;

  return segments.at(-1) === '' ? segments.slice(0, -1) : segments;
}

/**
 * Returns a decoded segment; undefined for one that is not plain: after a further decoding, in
 * the compatibility form of Unicode, or without the parameters that Java servers take off
 * (`..;x`), it would end a segment or leave one.
 */
function decodeSegment(segment: string): string | undefined {
  let decoded: string;
  try {
    decoded = decodeURIComponent(segment);
  } catch {
    return undefined;
  }

  const compatible = decoded.normalize('NFKC');
  // biome-ignore lint/suspicious/noControlCharactersInRegex: a control character ends texts
  if (/[/\\%\x00-\x1f\x7f]/.test(compatible)) return undefined;
  return /^\s*\.\.?\s*(;|$)/.test(compatible) ? undefined : decoded;
}
