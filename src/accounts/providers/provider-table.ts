import { defineEntity, p } from '@mikro-orm/postgresql';
import { z } from 'zod';
import { scopes } from '../../control/scopes.ts';
import { readEmail } from '../../lib/http/request/email.ts';
import {
  describeFields,
  guid,
  lengths,
  longId,
  text,
  timestamp,
} from '../../lib/http/request/fields.ts';
import type { Statement } from '../../lib/postgres/statement.ts';
import { TableStatements } from '../../lib/postgres/table-statements.ts';
import { invalid } from '../../lib/runtime/field-error.ts';

/** The rule of accounts that are made for people whom a provider knows, as a record has it. */
const rule = (providers: unknown): string => `
  case when ${providers}.creates_role_id is not null then jsonb_build_object(
    'Role', (select r.name from roles r where r.id = ${providers}.creates_role_id),
    'Scope', ${providers}.creates_scope, 'EntityId', ${providers}.creates_entity_id,
    'Domains', ${providers}.creates_domains, 'Claims', ${providers}.creates_claims) end`;
const factor = (providers: unknown): string => `
  case when ${providers}.second_factor is null then 'always'
       when ${providers}.second_factor = '{}' then 'never'
       else array_to_string(${providers}.second_factor, ' ') end`;
const state = (providers: unknown, column: string): string =>
  `(select ${column} from provider_states s where s.provider_id = ${providers}.id)`;

/** A provider as administrators see one. For reads only. */
const IdentityProviderSchema = defineEntity({
  name: 'IdentityProvider',
  tableName: 'identity_providers',
  properties: {
    id: p.bigint('number').primary(),
    guid: p.uuid(),
    name: p.text(),
    issuer: p.text(),
    clientIds: p.array(),
    isEnabled: p.boolean(),
    secondFactor: p.text().formula(factor),
    sessionHours: p.integer(),
    createsUsers: p.json().formula(rule).nullable(),
    identities: p.integer().formula(
      providers =>
        `(select count(*)::int from identities i
           where i.tenant_id = ${providers}.tenant_id and i.provider_id = ${providers}.id)`,
    ),
    reachedAt: p
      .datetime()
      .formula(providers => state(providers, 'reached_at'))
      .nullable(),
    failure: p
      .text()
      .formula(providers =>
        state(providers, 'case when failing_since is not null then failure end'),
      )
      .nullable(),
    createdAt: p.datetime(),
  },
});
class IdentityProvider extends IdentityProviderSchema.class {}
IdentityProviderSchema.setClass(IdentityProvider);

/** Maximum providers of a tenant: their list has no pages. */
export const maxProviders = 5;
const maxClientIds = 10;
/** Maximum domains, and claims, of a rule. */
const maxNames = 20;
/** The hours in which the session of a login by a provider ends. */
const sessionHours = { min: 1, max: 720, default: 12 };
/** Maximum characters of an issuer, of a client id, and of the name or the value of a claim. */
const maxText = 500;

/** The words of `SecondFactor` that are no values of `amr`. */
const factorWords: readonly string[] = ['never', 'always'];

const secondFactor = () =>
  text({ max: maxText }).refine(
    value => isFactor(value.split(/\s+/)),
    invalid(
      'must be never, always, or values of amr separated by spaces, at most 10',
      'wrong_format',
    ),
  );

function isFactor(words: readonly string[]): boolean {
  return (
    words.length === 1 || (words.length <= 10 && !words.some(word => factorWords.includes(word)))
  );
}

/**
 * Returns a valid `SecondFactor` as it is stored: the values of `amr`; empty for `never`, null
 * for `always`.
 */
export function storedFactor(value: string): string[] | null {
  if (value === 'always') return null;

  return value === 'never' ? [] : [...new Set(value.split(/\s+/))];
}

const domain = () =>
  z
    .string()
    .overwrite(value => domainOf(value) ?? value)
    .refine(
      value => domainOf(value) !== undefined,
      invalid('must be the domain of an e-mail address, such as example.com', 'wrong_format'),
    );

/** Returns a domain as it stands in the addresses of users; undefined for another text. */
function domainOf(value: string): string | undefined {
  return readEmail(`a@${value.trim()}`).address?.slice('a@'.length);
}

/** A value that a rule can compare a claim with. */
type ClaimValue = string | number | boolean;

/** True for a value of a claim that a rule can have: no list, no object. */
function isClaimValue(value: unknown): value is ClaimValue {
  if (typeof value === 'string') return value.length <= maxText && isStorable(value);

  return typeof value === 'boolean' || Number.isFinite(value);
}

/** True for a text that PostgreSQL can store in JSON. */
function isStorable(text: string): boolean {
  return text.isWellFormed() && !text.includes('\0');
}

const claims = () =>
  z
    .record(z.string().min(1).max(maxText), z.unknown())
    .refine(
      all => Object.keys(all).length <= maxNames,
      invalid(`must be at most ${maxNames} claims`, 'too_many', { max: maxNames }),
    )
    .refine(
      all => Object.entries(all).every(([name, value]) => isClaimValue(value) && isStorable(name)),
      invalid('must have a text, a number or a boolean for each claim', 'wrong_type'),
    );

const ruleDescriptions = {
  Role: 'The name of the role of these accounts.',
  Scope: 'Whether they access the data of every entity, or of the one below only.',
  EntityId: 'The `Id` of the entity that they belong to; null if it is none.',
  Domains:
    'The domains of addresses for which accounts are made: `email` of the ID token has one, and ' +
    '`email_verified` is true.',
  Claims:
    'Claims that the ID token must have, with their values. At least one for a provider at which ' +
    'anybody can have an account, such as `hd` for Google.',
};
const ruleFields = describeFields(
  {
    Role: text({ max: lengths.name }),
    Scope: z.enum(scopes),
    EntityId: longId().nullable().default(null),
    Domains: z.array(domain()).min(1).max(maxNames),
    Claims: claims().default({}),
  },
  ruleDescriptions,
);
export type ProviderRule = z.output<typeof ruleFields>;

const clientIds = () =>
  z
    .array(text({ max: maxText }))
    .min(1)
    .max(maxClientIds);
const hours = () => z.int().min(sessionHours.min).max(sessionHours.max);

const descriptions = {
  Name: 'The name of the provider, which a page of login shows.',
  Issuer:
    '`iss` of its tokens, to the letter: an https URL, under which it publishes its metadata ' +
    '(`/.well-known/openid-configuration`). It cannot be changed.',
  ClientIds:
    'The client ids of your front ends at the provider. **Use one for each tenant**: whoever ' +
    'serves the front end of a client id can exchange the tokens of its people at every tenant ' +
    'that names it.',
  IsEnabled:
    'Whether people can log in by it. To disable it ends all sessions that were opened by it.',
  SecondFactor:
    'When a sign-in counts as a second factor: `never`, `always`, or values of `amr`, separated ' +
    'by spaces, of which the ID token must have one, such as `mfa hwk`. Otherwise people with a ' +
    'second factor here are asked for it.',
  SessionHours: 'The hours after the login in which a session ends, also one that is in use.',
  CreatesUsers:
    'The rule by which a person whom the provider knows, and this tenant does not, gets an ' +
    'account at the first login; null: nobody does.',
};

/** The fields of a new provider. */
export const providerFields = describeFields(
  {
    Name: text({ max: lengths.name }),
    Issuer: text({ max: maxText }),
    ClientIds: clientIds(),
    IsEnabled: z.boolean().default(true),
    SecondFactor: secondFactor().default('never'),
    SessionHours: hours().default(sessionHours.default),
    CreatesUsers: ruleFields.nullable().default(null),
  },
  descriptions,
);
/** The fields that a PUT replaces. It must name all: each gives or takes away access. */
export const replacedProviderFields = describeFields(
  {
    Name: text({ max: lengths.name }),
    ClientIds: clientIds(),
    IsEnabled: z.boolean(),
    SecondFactor: secondFactor(),
    SessionHours: hours(),
    CreatesUsers: ruleFields.nullable(),
  },
  {
    Name: descriptions.Name,
    ClientIds: descriptions.ClientIds,
    IsEnabled: descriptions.IsEnabled,
    SecondFactor: descriptions.SecondFactor,
    SessionHours: descriptions.SessionHours,
    CreatesUsers: descriptions.CreatesUsers,
  },
);
export type ProviderFields = z.output<typeof replacedProviderFields>;
export type NewProviderFields = z.output<typeof providerFields>;

const ruleView = describeFields(
  {
    Role: z.string(),
    Scope: z.enum(scopes),
    EntityId: longId().nullable(),
    Domains: z.array(z.string()),
    Claims: z.record(z.string(), z.unknown()),
  },
  ruleDescriptions,
);

export const providerView = describeFields(
  {
    Id: longId(),
    Guid: guid(),
    Name: z.string(),
    Issuer: z.string(),
    ClientIds: z.array(z.string()),
    IsEnabled: z.boolean(),
    SecondFactor: z.string(),
    SessionHours: hours(),
    CreatesUsers: ruleView.nullable(),
    Identities: z.int32().min(0),
    ReachedAt: timestamp().nullable(),
    Failure: z.string().nullable(),
    CreatedAt: timestamp(),
  },
  {
    ...descriptions,
    Id: 'The number of the provider, which the service chooses.',
    Guid: 'The guid of the provider, in the address to which it sends logout tokens: `/api/v1/auth/logout/{guid}`.',
    Identities: 'The number of people who can log in by it.',
    ReachedAt:
      'When its metadata and keys were last read; null: not yet. They are read when somebody logs in.',
    Failure: 'Why they cannot be read at the moment; null: they can, or nobody has tried.',
    CreatedAt: 'When the provider was added.',
  },
).meta({ title: 'IdentityProvider' });
export type ProviderView = z.output<typeof providerView>;

/** The fields that logins, and the name of the role, change. */
export const volatileProviderFields: readonly (keyof ProviderView)[] = [
  'Identities',
  'ReachedAt',
  'Failure',
];

export const providerTable = new TableStatements(IdentityProvider, providerView);

/** Selects one provider, as the JSON text that `viewOf` reads. */
export function providerById(tenantId: number, id: number): Statement {
  return providerTable.selectJson([
    ['tenant_id = ?', tenantId],
    ['id = ?', id],
  ]);
}
