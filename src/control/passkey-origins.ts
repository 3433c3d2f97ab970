import { isIP } from 'node:net';
import type { TenantRecord } from './records.ts';

/** The facts of a tenant that say on which pages its passkeys work. */
export type PasskeyPages = Pick<TenantRecord, 'guid' | 'appUrl' | 'passkeyOrigins'>;

/**
 * Returns the origins of the pages on which the passkeys of a tenant work: that of its own
 * `app_url`, and those that the operator has added. Those of all tenants, such as
 * `CORS_ORIGINS`, are none of them.
 */
export function passkeyOrigins({ guid, appUrl, passkeyOrigins }: PasskeyPages): string[] {
  const pages = appUrl?.replaceAll('{tenant}', guid) ?? '';
  const ofPages = URL.canParse(pages) ? [new URL(pages).origin] : [];

  return [...new Set([...ofPages, ...passkeyOrigins])].filter(isPasskeyOrigin);
}

/**
 * True for an origin on whose pages browsers make passkeys: with TLS or on the same machine, and
 * with a host name (WebAuthn, *effective domain*).
 */
export function isPasskeyOrigin(origin: string): boolean {
  if (!URL.canParse(origin)) return false;
  const { protocol, hostname, origin: own } = new URL(origin);
  const isLocal = /^(.+\.)?localhost$/.test(hostname);
  const isAddress = hostname.startsWith('[') || isIP(hostname) !== 0;

  return (
    own === origin && !isAddress && (protocol === 'https:' || (protocol === 'http:' && isLocal))
  );
}

/**
 * Returns the RP ID of an origin: its host, never a parent of it, on which pages of others may
 * be.
 */
export function rpIdOf(origin: string): string {
  return new URL(origin).hostname;
}
