import type { Caller } from '../../tenancy/caller.ts';

/** All spellings of the property that assigns a record to a business entity. */
const spellings = ['EntityId', 'EntityID', 'entityId', 'entityID'];

/**
 * Enforces on POST that a caller of scope `Self` creates records only for their own entity: if
 * the body has the property, in any spelling, the caller's entity replaces its value. All
 * routes do this between parsing and validation of the body, so no route can omit it.
 */
export function enforceScope(body: Record<string, unknown>, caller: Caller): void {
  if (caller.scope !== 'Self') return;
  const present = spellings.filter(spelling => Object.hasOwn(body, spelling));
  if (present.length === 0) return;
  for (const spelling of present) delete body[spelling];
  body.EntityId = caller.entityId;
}
