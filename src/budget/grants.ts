/** The connections of one process to one server, as the control database records them. */
export interface Grant {
  /** The process. */
  readonly holder: string;
  readonly kind: 'service' | 'command';
  /** Connections that the process may have. Its limit is never above this. */
  readonly granted: number;
  /** Connections that it had at its last exchange: in use, idle, being opened and being closed. */
  readonly held: number;
  /** Connections that it had a use for lately, and those to the control database that it lacks. */
  readonly wanted: number;
  /** Connections to the control database that the process may have, beside `granted`, if that is on the server. */
  readonly reserved: number;
  /** Maximum connections to the server, over all processes, in the settings of the process. */
  readonly budget: number;
  /** Grows with every exchange of the process. */
  readonly heartbeat: number;
}

/** All grants of one server at one moment. */
export interface ServerGrants {
  /** Grows with every change of the grants. */
  readonly version: number;
  readonly grants: readonly Grant[];
}

/** One atomic change of a server's grants. It has an effect only if `version` is still the current one. */
export interface GrantChange {
  readonly version: number;
  /** Added, or put in the place of the grant of the same holder. */
  readonly own: Grant;
  /** Holders whose grants are removed. */
  readonly remove: readonly string[];
}

/** Returns the grants after a change. */
export function applyChange({ version, grants }: ServerGrants, { own, remove }: GrantChange): ServerGrants {
  const others = grants.filter(({ holder }) => holder !== own.holder && !remove.includes(holder));
  return { version: version + 1, grants: [...others, own] };
}
