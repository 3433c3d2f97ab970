import type pg from 'pg';
import { countText } from '../command/texts.ts';

/** The providers and identities of a later state of the control database. */
export interface LaterProviders {
  /** Each provider, with the facts that decide who may sign in by it, as JSON. */
  readonly providers: string;
  /** Each identity with its provider and its user, as JSON. */
  readonly identities: string;
}

/** SQL of a text that differs with the rule of accounts of the provider `p`; null: no rule. */
const rule = `
  case when p.creates_role_id is not null then jsonb_build_array(
    (select r.name from roles r where r.id = p.creates_role_id), p.creates_scope, p.creates_entity_id,
    p.creates_entity_since, p.creates_domains, p.creates_claims, p.creates_permissions)::text end`;

/** SQL of the fields of `LaterProviders`, for a list of columns. */
export const laterProviders = `
  (select coalesce(json_agg(json_build_object('guid', p.guid, 'clients', p.client_ids, 'enabled', p.is_enabled,
            'factor', p.second_factor, 'hours', p.session_hours, 'rule', ${rule})), '[]')
     from identity_providers p)::text as providers,
  (select coalesce(json_agg(json_build_object('provider', p.guid, 'user', u.guid, 'subject', i.subject,
            'held', i.held_at is not null)), '[]')
     from identities i join identity_providers p on p.tenant_id = i.tenant_id and p.id = i.provider_id
     join users u on u.tenant_id = i.tenant_id and u.id = i.user_id)::text as identities`;

const laterRows = `json_to_recordset($1::json)
  as l (guid uuid, clients text[], enabled boolean, factor text[], hours integer, rule text)`;

/** The changes that a later state has made to the providers of a restored one. */
export interface ReplayedProviders {
  /** Providers that were removed later. */
  readonly providersRemoved: number;
  /** Providers that accept less than they were restored with. */
  readonly providersNarrowed: number;
  /** Identities that were unlinked later. */
  readonly identitiesRemoved: number;
}

/**
 * Narrows, in a restored control database, by which providers people log in to what a later
 * state permits, too: a provider or an identity that is gone there is removed, one that is
 * disabled or held there becomes so; a provider accepts the client ids of both, trusts what both
 * take for a second factor, has the shorter sessions, and makes no accounts unless by the same
 * rule.
 */
export async function replayProviders(
  client: pg.Client,
  { providers, identities }: LaterProviders,
): Promise<ReplayedProviders> {
  const removed = await client.query(
    `delete from identity_providers p
      where not exists (select from ${laterRows} where l.guid = p.guid)`,
    [providers],
  );
  const unlinked = await client.query(
    `delete from identities i using identity_providers p, users u
      where p.tenant_id = i.tenant_id and p.id = i.provider_id
        and u.tenant_id = i.tenant_id and u.id = i.user_id
        and not exists (
          select from json_to_recordset($1::json) as l (provider uuid, "user" uuid, subject text)
           where l.provider = p.guid and l."user" = u.guid and l.subject = i.subject)`,
    [identities],
  );
  await client.query(
    `update identities i set held_at = now()
       from json_to_recordset($1::json) as l (provider uuid, subject text, held boolean)
       join identity_providers p on p.guid = l.provider
      where i.tenant_id = p.tenant_id and i.provider_id = p.id and i.subject = l.subject
        and l.held and i.held_at is null`,
    [identities],
  );

  const narrowed = await client.query(
    `with later as materialized (
       select p.id, l.*, array(select c from unnest(p.client_ids) as c where c = any (l.clients)) as common,
              l.rule is not distinct from ${rule} as has_rule
         from ${laterRows} join identity_providers p on p.guid = l.guid)
     update identity_providers p
        set is_enabled = p.is_enabled and l.enabled and l.common <> '{}',
            client_ids = case when l.common = '{}' then p.client_ids else l.common end,
            second_factor = case
              when p.second_factor is null then l.factor
              when l.factor is null then p.second_factor
              else array(select f from unnest(p.second_factor) as f where f = any (l.factor))
            end,
            session_hours = least(p.session_hours, l.hours),
            creates_role_id = case when l.has_rule then creates_role_id end,
            creates_scope = case when l.has_rule then creates_scope end,
            creates_entity_id = case when l.has_rule then creates_entity_id end,
            creates_entity_since = case when l.has_rule then creates_entity_since end,
            creates_domains = case when l.has_rule then creates_domains end,
            creates_claims = case when l.has_rule then creates_claims end,
            creates_permissions = case when l.has_rule then creates_permissions end
       from later l
      where l.id = p.id
        and (p.is_enabled and not l.enabled or not p.client_ids <@ l.clients or p.session_hours > l.hours
          or l.factor is not null and (p.second_factor is null or not p.second_factor <@ l.factor)
          or p.creates_role_id is not null and not l.has_rule)`,
    [providers],
  );

  return {
    providersRemoved: removed.rowCount ?? 0,
    providersNarrowed: narrowed.rowCount ?? 0,
    identitiesRemoved: unlinked.rowCount ?? 0,
  };
}

/** Returns what the operator reads about replayed providers, line by line. */
export function replayedProviderLines(replayed: ReplayedProviders): string[] {
  const { providersRemoved, providersNarrowed, identitiesRemoved } = replayed;
  const isNone = providersRemoved + providersNarrowed + identitiesRemoved === 0;
  if (isNone) return [];

  return [
    `Sign-ins by providers: ${countText(providersRemoved, 'provider')} removed again, ` +
      `${countText(providersNarrowed, 'provider')} limited to what both states permit, ` +
      `${countText(identitiesRemoved, 'identity', 'identities')} unlinked again.`,
  ];
}
