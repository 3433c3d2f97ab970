import { z } from 'zod';
import { type QueryControl, queryControl } from '../../control/database.ts';
import { addedBy, requireNoFormerBuild } from '../../control/former-builds.ts';
import { hasFactor, hasProvedFactor } from '../../control/second-factor.ts';
import { intCount } from '../../lib/http/request/fields.ts';
import { pathId } from '../../lib/http/route.ts';
import { nothing } from '../../lib/postgres/statement.ts';
import { problem } from '../../lib/problems.ts';
import { defineRoute, type TenantRoute } from '../../tenancy/define-route.ts';
import { requireMayManage } from '../../tenancy/permission-rules.ts';
import type { AuthServices } from '../auth/auth-services.ts';
import { changePeople } from './change-people.ts';
import { revokeSomeWithoutFactor } from './revoke-without-factor.ts';

const view = z
  .object({
    Required: z.boolean().describe('Whether people with this role need a second factor to log in.'),
    PeopleWithout: intCount().describe('The people with this role who have no second factor yet.'),
  })
  .meta({ title: 'RoleSecondFactor' });

const requirement = `
  select requires_second_factor as "Required",
         (select count(*)::int from users u
           where u.tenant_id = r.tenant_id and u.role_id = r.id and u.kind = 'person' and u.disabled_at is null
             and not ${hasFactor('u')}) as "PeopleWithout"
    from roles r where id = $1 and tenant_id = $2`;
const managed = `
  select permissions, exists (select from users u where u.id = $3 and u.role_id = r.id) as "isOwn",
         exists (select from sessions s where s.id = $4::uuid and ${hasProvedFactor('s')}) as "hasProved"
    from roles r where id = $1 and tenant_id = $2`;
const setRequirement = 'update roles set requires_second_factor = $2 where id = $1';

/** Whether a role requires a second factor, of the built-in roles too. */
export function roleSecondFactorRoutes(services: AuthServices, rolesPath: string): TenantRoute[] {
  const path = `${rolesPath}/:id/second-factor`;
  const common = { tag: 'Role', access: 'users.manage', path, response: view } as const;
  const idOf = (id: string | undefined) => pathId(id, Number.MAX_SAFE_INTEGER) ?? 0;
  const read = async (id: number, tenantId: number) => {
    const [found] = await queryControl<z.output<typeof view>>(
      services.control,
      'role_second_factor',
      requirement,
      [id, tenantId],
    );
    if (!found) throw problem('not_found');
    return found;
  };

  return [
    defineRoute({
      ...common,
      method: 'GET',
      summary: 'Whether people with one Role need a second factor, and how many have none yet',
      handler: ({ params }, { tenant }) => read(idOf(params.id), tenant.id),
    }),

    defineRoute({
      ...common,
      method: 'PUT',
      summary: 'Require a second factor of the people with one Role, or require none any more',
      description:
        'From then on, sessions of these people that have no second factor are refused. At the ' +
        'next login, who has none sets one up. Programs need none.',
      body: z.object({ Required: view.shape.Required }),
      example: { Required: true },
      problems: ['wrong_state'],
      handler: async ({ body: { Required }, params }, context) => {
        const { caller, tenant } = context;
        const id = idOf(params.id);
        await changePeople(services, context, async ({ query, permissions }) => {
          if (Required) await requireNoFormerBuild(query, addedBy.secondFactors);
          const role = await findRole(query, [id, tenant.id, caller.userId, sessionOf(caller)]);
          requireMayManage(role.permissions, permissions);
          if (Required && role.isOwn && !caller.program && !role.hasProved) {
            throw problem('wrong_state', {
              detail: 'This is your own role: set up a second factor for yourself first.',
            });
          }

          await query('set_requirement', setRequirement, [id, Required]);
          if (Required) await revokeSomeWithoutFactor(query, id);
          return nothing;
        });
        if (Required) services.regularWork.wake();

        return read(id, tenant.id);
      },
    }),
  ];
}

interface ManagedRole {
  readonly permissions: string[];
  /** True if it is the role of the caller. */
  readonly isOwn: boolean;
  /** True if the session of the caller has a second factor. */
  readonly hasProved: boolean;
}

async function findRole(
  query: QueryControl,
  values: (number | string | null)[],
): Promise<ManagedRole> {
  const [role] = await query<ManagedRole>('managed_role', managed, values);
  if (!role) throw problem('not_found');
  return role;
}

/** The session of a caller; null for a program or a legacy client. */
function sessionOf({ sessionId }: { readonly sessionId: string }): string | null {
  return sessionId === '' ? null : sessionId;
}
