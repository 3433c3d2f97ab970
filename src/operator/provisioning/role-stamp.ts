import { createHash } from 'node:crypto';
import { quoteIdentifier, quoteLiteral } from '../../postgres/quote.ts';

/**
 * Returns SQL that records the owner of a login role in its comment: two installations may use the same names. Every
 * login of the server can read the comment, so it has a digest of the guid, which cannot be guessed.
 */
export function roleComment({ roleName, guid }: { roleName: string; guid: string }): string {
  return `comment on role ${quoteIdentifier(roleName)} is ${quoteLiteral(roleStamps(guid)[0])}`;
}

/** Returns the comments that a login role of a tenant can have: that of this build, and that of earlier ones. */
export function roleStamps(guid: string): [stamp: string, former: string] {
  return [createHash('sha256').update(guid).digest('hex'), guid];
}
