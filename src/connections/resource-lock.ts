import { createHash } from 'node:crypto';

const keys = new Map<string, string>();

/** The key of a resource's advisory lock in the database of one tenant: 64 bits, the same in every process. */
export function resourceLockKey(resource: string): string {
  let key = keys.get(resource);
  if (key === undefined) {
    key = createHash('sha256').update(`resource ${resource}`).digest().readBigInt64BE().toString();
    keys.set(resource, key);
  }
  return key;
}

export interface ResourceState {
  /** True when no other connection holds the lock: a writer holds it, shared, until its change is committed. */
  readonly free: boolean;
}

/** Returns one `ResourceState`. The lock that it tries is exclusive, and released at the end of the statement. */
export const resourceState = (key: string) => ({
  name: 'resource_state',
  text: 'select pg_try_advisory_xact_lock($1) as free',
  values: [key],
});
