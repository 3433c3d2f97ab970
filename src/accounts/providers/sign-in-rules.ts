import { z } from 'zod';
import { type ControlDatabase, type QueryControl, queryControl } from '../../control/database.ts';
import { addedBy, requireNoFormerBuild } from '../../control/former-builds.ts';
import { isManager } from '../../control/managers.ts';
import { describeFields, longId } from '../../lib/http/request/fields.ts';
import { isInteger } from '../../lib/narrow.ts';
import { nothing } from '../../lib/postgres/statement.ts';
import { problem } from '../../lib/problems.ts';
import type { FieldErrors } from '../../lib/runtime/field-error.ts';
import { defineRoute, type TenantRoute } from '../../tenancy/define-route.ts';
import type { RequestContext } from '../../tenancy/request-context.ts';
import { requireScopeAll } from '../../tenancy/require-manager.ts';
import type { AuthServices } from '../auth/auth-services.ts';
import { noPassword } from '../auth/passwords.ts';
import { changePeople, errorsOfPeople, type PeopleTransaction } from '../people/change-people.ts';
import { requireMayManageProviders } from './provider-records.ts';

const path = '/api/v1/auth/sign-in-rules';
/** Maximum people who may use a password while others may not. */
const maxExceptions = 20;

const descriptions = {
  PasswordLogins:
    'Whether people may log in by a password or a passkey. With `refused`, they sign in at a ' +
    'provider only: sessions that were opened otherwise end at their next use, links set no ' +
    'passwords, and nobody registers.',
  Except:
    'The ids of users who may log in by a password or a passkey all the same, such as the one who ' +
    'lets the others in when the provider is away. While passwords are refused, one of them ' +
    'manages the users, has the scope `All`, and has a password.',
};
const rules = describeFields(
  {
    PasswordLogins: z.enum(['allowed', 'refused']),
    Except: z.array(longId()).max(maxExceptions),
  },
  descriptions,
);
const rulesView = rules.meta({ title: 'SignInRules' });
type Rules = z.output<typeof rules>;

/** The rules by which the people of a tenant log in, for its administrators. */
export function signInRuleRoutes(services: AuthServices): TenantRoute[] {
  const { control, notices } = services;
  const common = {
    path,
    tag: 'IdentityProvider',
    access: 'users.manage',
    response: rulesView,
  } as const;

  return [
    defineRoute({
      ...common,
      method: 'GET',
      summary: 'Whether people may log in by a password',
      description: 'Needs the scope `All`.',
      handler: async (_input, { caller, tenant }) => {
        requireScopeAll(caller);
        return readRules(control, tenant.id);
      },
    }),

    defineRoute({
      ...common,
      method: 'PUT',
      summary: 'Refuse logins by a password, or allow them again',
      description:
        'Needs the rights that a change of an IdentityProvider needs. To refuse them needs a ' +
        'provider by which a person who manages the users has signed in within the last hour, and ' +
        'an address of your application, to which invitations lead from then on. The operator can ' +
        'allow them again. All administrators get a mail.',
      body: rules,
      example: { PasswordLogins: 'allowed', Except: [1] },
      problems: ['migration_pending', 'verification_required', 'wrong_state'],
      handler: async ({ body }, context) => {
        await changePeople(
          services,
          context,
          async transaction => {
            await replaceRules(transaction, services, context, body);
            return nothing;
          },
          {
            requireAllowed: transaction => requireMayManageProviders(transaction, context),
          },
        );
        notices.wake();

        return readRules(control, context.tenant.id);
      },
      checkValid: ({ body, errors }, context) =>
        errorsOfPeople(services, context, transaction =>
          requirePeople(transaction, context, idsOf(body.Except), errors),
        ),
    }),
  ];
}

/** Returns the ids in a field that the contract may have refused. */
function idsOf(field: unknown): number[] {
  return Array.isArray(field) ? field.filter(isInteger) : [];
}

const rulesOfTenant = `
  select password_logins as "PasswordLogins", to_json(except_users) as "Except"
    from sign_in_rules where tenant_id = $1`;

async function readRules(control: ControlDatabase, tenantId: number): Promise<Rules> {
  const [stored] = await queryControl<Rules>(control, 'sign_in_rules', rulesOfTenant, [tenantId]);

  return stored ?? { PasswordLogins: 'allowed', Except: [] };
}

// Rules that a tenant without a row has already are no change.
const storeRules = `
  insert into sign_in_rules as known (tenant_id, password_logins, except_users)
  select $1, $2, $3::bigint[]
   where $2 <> 'allowed' or $3::bigint[] <> '{}'
      or exists (select from sign_in_rules where tenant_id = $1)
  on conflict (tenant_id) do update
     set password_logins = excluded.password_logins, except_users = excluded.except_users,
         changed_at = now()
   where (known.password_logins, known.except_users)
         is distinct from (excluded.password_logins, excluded.except_users)`;

/** @throws {Problem} `validation_failed`, `wrong_state`, `migration_pending` */
async function replaceRules(
  transaction: PeopleTransaction,
  { appUrl }: Pick<AuthServices, 'appUrl'>,
  context: RequestContext,
  { PasswordLogins, Except }: Rules,
): Promise<void> {
  const { query } = transaction;
  const { tenant } = context;
  await requireNoFormerBuild(query, addedBy.signInRules);
  const people = [...new Set(Except)];
  await requirePeople(transaction, context, people);

  if (PasswordLogins === 'refused') {
    await requireException(query, tenant.id, people);
    await requireWorkingProvider(query, tenant.id);
    if ((tenant.appUrl ?? appUrl) === undefined) {
      throw problem('wrong_state', {
        detail:
          'Ask your operator to set the address of your application first: invitations lead ' +
          'there, because the pages of the service take passwords only.',
      });
    }
  }

  await query('store_sign_in_rules', storeRules, [tenant.id, PasswordLogins, people]);
}

const peopleOfTenant = `
  select id::float8 as id from users where tenant_id = $1 and id = any ($2::bigint[]) and kind = 'person'`;

/**
 * Requires that ids are those of people of the tenant.
 * @param errors of other fields, which the caller has found
 * @throws {Problem} `validation_failed`
 */
async function requirePeople(
  { query }: PeopleTransaction,
  { tenant }: RequestContext,
  ids: readonly number[],
  errors: FieldErrors = {},
): Promise<void> {
  const found = await query<{ id: number }>('people_of_tenant', peopleOfTenant, [tenant.id, ids]);
  const known = new Set(found.map(({ id }) => id));
  const unknown = Object.fromEntries(
    ids.flatMap((id, index) =>
      known.has(id)
        ? []
        : [
            [
              `Except[${index}]`,
              [{ message: 'is not a user', code: 'unknown_reference' as const }],
            ],
          ],
    ),
  );

  const all = { ...errors, ...unknown };
  if (Object.keys(all).length > 0) throw problem('validation_failed', { errors: all });
}

const exception = `
  select from users u join roles r on r.id = u.role_id
   where u.tenant_id = $1 and u.id = any ($2::bigint[]) and u.kind = 'person'
     and u.password_hash <> '${noPassword}' and ${isManager}`;

/** @throws {Problem} `wrong_state` */
async function requireException(
  query: QueryControl,
  tenantId: number,
  people: readonly number[],
): Promise<void> {
  const found = await query('sign_in_exception', exception, [tenantId, people]);
  if (found.length > 0) return;

  throw problem('wrong_state', {
    detail:
      'Except must name a person who manages the users with the scope All, and has a password: ' +
      'otherwise nobody could let the others in when the provider is away.',
  });
}

const workingProvider = `
  select from identities i
    join identity_providers p on p.tenant_id = i.tenant_id and p.id = i.provider_id
    join users u on u.tenant_id = i.tenant_id and u.id = i.user_id
    join roles r on r.id = u.role_id
   where i.tenant_id = $1 and i.held_at is null and i.last_used_at > now() - interval '1 hour'
     and p.is_enabled and ${isManager}
   limit 1`;

/** @throws {Problem} `wrong_state` */
async function requireWorkingProvider(query: QueryControl, tenantId: number): Promise<void> {
  if ((await query('working_provider', workingProvider, [tenantId])).length > 0) return;

  throw problem('wrong_state', {
    detail:
      'A person who manages the users with the scope All must have signed in at a provider within ' +
      'the last hour: that shows that the provider works.',
  });
}
