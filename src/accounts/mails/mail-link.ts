import { randomBytes } from 'node:crypto';
import type { MacVerifier, SecretBox } from '../../control/secret-box.ts';

/** The mails with a link: whoever has it has received the mail. */
export type LinkKind = 'invitation' | 'registration' | 'reset';

/** The facts over which the token of a link is made. */
export interface LinkOwner {
  /** `mail_deliveries.link`. */
  readonly link: string;
  readonly kind: LinkKind;
  readonly tenantGuid: string;
  readonly userGuid: string;
}

/** The lifetime of each link, as an interval of PostgreSQL. */
export const linkLifetimes: Readonly<Record<LinkKind, string>> = {
  invitation: '7 days',
  registration: '24 hours',
  reset: '1 hour',
};

/** The purpose of the codes of links, for `SecretBox.mac`. */
const purpose = 'mail_link';

/** Returns 128 random bits, as a uuid that PostgreSQL reads. */
export function newLink(): string {
  return randomBytes(16).toString('hex');
}

/**
 * Returns the token of a link: the id of its delivery and an HMAC-SHA-256, both in base64url,
 * with a dot between them. Every attempt makes the same token, and no row holds it.
 * @throws {MasterKeyError} while neither key of the process is the present one
 */
export function linkToken(secrets: Pick<SecretBox, 'mac'>, owner: LinkOwner): string {
  const id = Buffer.from(owner.link.replaceAll('-', ''), 'hex');
  return `${id.toString('base64url')}.${secrets.mac(purpose, ...partsOf(owner)).toString('base64url')}`;
}

/** The parts of a token that a client sends. */
export interface ParsedLinkToken {
  readonly link: string;
  readonly code: Buffer;
}

/**
 * Parses a token; undefined for text in any other form, and in another spelling of the same
 * bytes.
 */
export function parseLinkToken(token: string): ParsedLinkToken | undefined {
  const [, id = '', code = ''] = /^([\w-]{22})\.([\w-]{43})$/.exec(token) ?? [];
  const parts = [Buffer.from(id, 'base64url'), Buffer.from(code, 'base64url')] as const;
  const [linkBytes, codeBytes] = parts;
  if (
    id === '' ||
    linkBytes.toString('base64url') !== id ||
    codeBytes.toString('base64url') !== code
  ) {
    return undefined;
  }

  return { link: linkBytes.toString('hex'), code: codeBytes };
}

/**
 * Checks, in constant time, that either master key of the process has made the token for this
 * owner.
 */
export function isTokenOf(
  secrets: MacVerifier,
  { code }: ParsedLinkToken,
  owner: LinkOwner,
): boolean {
  return secrets.verifyMac(code, purpose, ...partsOf(owner));
}

function partsOf({ kind, tenantGuid, userGuid, link }: LinkOwner): string[] {
  return [kind, tenantGuid, userGuid, link.replaceAll('-', '')];
}
