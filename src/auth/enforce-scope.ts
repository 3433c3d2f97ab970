import type { Caller } from '../tenancy/request-context.ts';

/** Every spelling under which a body can carry the entity that a record belongs to. */
const spellings = ['EntityId', 'EntityID', 'entityId', 'entityID'];

/**
 * On POST, a caller of scope `Self` writes for the own entity: when the body has the property, under any spelling, its
 * value becomes the caller's, whatever was sent. Done here for all routes, after the body is parsed and before it is
 * validated, so that no route can forget it.
 */
export function enforceScope(body: Record<string, unknown>, caller: Caller): void {
  if (caller.scope !== 'Self') return;
  const present = spellings.filter(spelling => Object.hasOwn(body, spelling));
  if (present.length === 0) return;
  for (const spelling of present) delete body[spelling];
  body.EntityId = caller.entityId;
}
