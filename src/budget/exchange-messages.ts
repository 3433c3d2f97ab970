import type { GrantChange, ServerGrants } from './grants.ts';

/** A request to the outside, of which one at a time is under way. */
export type GrantRequest =
  | { readonly kind: 'read' }
  | { readonly kind: 'write'; readonly change: GrantChange }
  /** Which of these holders still have a connection to the server? Those of `end` are ended where that is allowed. */
  | { readonly kind: 'find connections'; readonly of: readonly string[]; readonly end: readonly string[] };

export type GrantReply =
  | { readonly kind: 'grants'; readonly server: ServerGrants }
  /** The change is committed. */
  | { readonly kind: 'written' }
  /** The change had no effect, because its version was not the current one. */
  | { readonly kind: 'outdated' }
  | { readonly kind: 'connections'; readonly of: readonly string[] }
  /** It is not known whether the request had an effect. It may still have one, at any later time. */
  | { readonly kind: 'failed' };

export interface ServerUse {
  /** Connections that the server counts: in use, idle, being opened and being closed. */
  readonly held: number;
  readonly inUse: number;
  /** Requests that wait for a connection. */
  readonly waiting: number;
}
