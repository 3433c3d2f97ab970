import { type ControlDatabase, queryControl } from '../../control/database.ts';
import type { TenantRecord } from '../../control/records.ts';
import type {
  AccountsMade,
  ChangeMaker,
  ClientsEnded,
  DisabledFacts,
  EndingFacts,
  KeysEnding,
  MadeAccounts,
  NamedPerson,
  PersonDisabled,
} from './notice-kinds.ts';

/** Returns the hosts to which the webhooks of a user send. */
export type ReadWebhooks = (tenant: TenantRecord, userId: number) => Promise<readonly string[]>;

/** Maximum names of a kind in a mail. */
const maxNames = 20;

/** SQL: aggregates named things as `Named`, in an order. */
const named = (item: string, order: string): string => `
  jsonb_build_object('count', count(*),
                     'items', coalesce(jsonb_path_query_array(jsonb_agg(${item} order by ${order}), '$[0 to ${maxNames - 1}]'), '[]'))`;
const namedKey = `
  jsonb_build_object('program', p.first_name, 'prefix', k.prefix, 'endsAt', to_char(k.expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
                     'usedOn', to_char(k.last_used_at at time zone 'UTC', 'YYYY-MM-DD'))`;
const ofPrograms = `
  program_keys k join users p on p.id = k.program_id
   where k.tenant_id = $1 and k.revoked_at is null and k.expires_at > now() and p.disabled_at is null`;
const endingKeys = `
  select ${named(namedKey, 'p.first_name, k.expires_at, k.id')} as keys from ${ofPrograms}
     and (k.expires_at at time zone 'UTC')::date = $2::date and k.created_at < $3::timestamptz`;
const madeThings = `
  select concat_ws(' ', u.first_name, u.last_name) as name, u.email,
         (select ${named(namedKey, 'p.first_name, k.expires_at, k.id')} from ${ofPrograms} and k.made_by = u.id) as keys,
         (select ${named('p.first_name', 'p.first_name, p.id')} from users p
           where p.tenant_id = $1 and p.kind = 'program' and p.made_by = u.id and p.disabled_at is null) as programs,
         (select ${named('p.name', 'p.name, p.id')} from identity_providers p
           where p.tenant_id = $1 and exists (
             select from audit_log a
              where a.tenant_id = p.tenant_id and a.resource = 'IdentityProvider' and a.record_key = p.id::text
                and a.user_id = u.id)) as providers
    from users u where u.tenant_id = $1 and u.id = $2 and u.disabled_at is not null`;

/**
 * Reads the keys of a tenant that end on a day.
 * @returns undefined when there are none any more
 */
export async function readEndingKeys(
  control: ControlDatabase,
  tenantId: number,
  details: KeysEnding,
): Promise<EndingFacts | undefined> {
  const { day, madeBefore } = details;
  const values = [tenantId, day, madeBefore];
  const [row] = await queryControl<Pick<EndingFacts, 'keys'>>(
    control,
    'notices_ending_keys',
    endingKeys,
    values,
  );

  return row && row.keys.count > 0 ? { ...details, keys: row.keys } : undefined;
}

/**
 * Reads what a person who was disabled has made, and goes on.
 * @param webhooks the hosts of the person's webhooks; undefined: they cannot be read
 * @returns undefined when there is nothing, and when the person was enabled again or removed
 */
export async function readMadeThings(
  control: ControlDatabase,
  tenantId: number,
  details: PersonDisabled,
  webhooks: readonly string[] | undefined,
): Promise<DisabledFacts | undefined> {
  const values = [tenantId, details.userId];
  const [row] = await queryControl<Required<Omit<DisabledFacts, 'userId' | 'webhooks'>>>(
    control,
    'notices_made_things',
    madeThings,
    values,
  );
  if (!row) return undefined;

  const hosts = webhooks && { items: webhooks.slice(0, maxNames), count: webhooks.length };
  const { keys, programs, providers } = row;
  const count = keys.count + programs.count + providers.count + (hosts ? hosts.count : 1);
  return count > 0 ? { ...details, ...row, webhooks: hosts ?? null } : undefined;
}

const personOf = `
  select concat_ws(' ', first_name, last_name) as name, email from users where tenant_id = $1 and id = $2`;

/**
 * Reads the person for whom API clients acted that have ended.
 * @returns undefined when the person was removed
 */
export async function readEndedClients(
  control: ControlDatabase,
  tenantId: number,
  details: ClientsEnded,
): Promise<(ClientsEnded & NamedPerson) | undefined> {
  const values = [tenantId, details.userId];
  const [person] = await queryControl<NamedPerson>(control, 'notices_person_of', personOf, values);

  return person && { ...details, ...person };
}

/** Reads the person who has changed a provider, or the rules of sign-in. */
export async function readMaker<Details extends { readonly userId: number | null }>(
  control: ControlDatabase,
  tenantId: number,
  details: Details,
): Promise<Details & ChangeMaker> {
  const values = [tenantId, details.userId];
  const [person] = await queryControl<NamedPerson>(control, 'notices_person_of', personOf, values);

  return { ...details, person: person ?? null };
}

const madeAccounts = `
  select ${named(`jsonb_build_object('email', u.email, 'provider', p.name)`, 'i.created_at, i.id')} as accounts
    from identities i
    join users u on u.tenant_id = i.tenant_id and u.id = i.user_id
    join identity_providers p on p.tenant_id = i.tenant_id and p.id = i.provider_id
   where i.tenant_id = $1 and i.is_by_rule
     and i.created_at >= $2::date::timestamp at time zone 'UTC'
     and i.created_at < ($2::date + 1)::timestamp at time zone 'UTC'`;

/**
 * Reads the accounts that were made on a day by the rules of providers.
 * @returns undefined when there are none any more
 */
export async function readMadeAccounts(
  control: ControlDatabase,
  tenantId: number,
  details: AccountsMade,
): Promise<MadeAccounts | undefined> {
  const [row] = await queryControl<Pick<MadeAccounts, 'accounts'>>(
    control,
    'notices_made_accounts',
    madeAccounts,
    [tenantId, details.day],
  );

  return row && row.accounts.count > 0 ? { ...details, accounts: row.accounts } : undefined;
}
