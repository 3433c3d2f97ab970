import { createHash } from 'node:crypto';
import { quoteIdentifier, quoteLiteral } from '../../postgres/quote.ts';

/**
 * Returns SQL that records the owner of a login role in its comment: two installations may use the same names. Every
 * login of the server can read the comment, so it has a digest of the guid, which cannot be guessed.
 * @param run the epoch of the run that opens or closes the role: no earlier run does either afterwards
 */
export function roleComment({ role, guid }: { role: string; guid: string }, run?: number): string {
  const text = [roleStamps(guid)[0], ...(run === undefined ? [] : [`run ${run}`])].join(' ');
  return `comment on role ${quoteIdentifier(role)} is ${quoteLiteral(text)}`;
}

/** Returns the comments that a login role of a tenant can have: that of this build, and that of earlier ones. */
export function roleStamps(guid: string): [stamp: string, former: string] {
  return [createHash('sha256').update(guid).digest('hex'), guid];
}

/** Returns whether a role with that comment is one of a tenant. */
export function isRoleOf(comment: string, guid: string): boolean {
  return roleStamps(guid).includes(comment.split(' ')[0] ?? '');
}
