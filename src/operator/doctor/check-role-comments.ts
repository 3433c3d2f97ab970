import { countText } from '../command/texts.ts';
import { roleComment } from '../databases/role-owner.ts';
import type { CheckContext } from './check-context.ts';

/** Checks that no comment of a login role is the guid of its tenant, as earlier builds wrote it. */
export function checkRoleComments({ tenants, facts, report }: CheckContext): void {
  const readable = tenants.filter(({ roleName, guid }) => facts.roles.get(roleName)?.comment === guid);
  if (readable.length === 0) return;
  report({
    check: 'readable_guid',
    problem: `every login of the server can read the guids of ${countText(readable.length, 'tenant')} in comments of roles`,
    remedy: 'Replace the comments by digests of the guids',
    statements: readable.map(({ roleName: role, guid }) => roleComment({ role, guid })),
  });
}
