import type pg from 'pg';
import { z } from 'zod';
import type { ControlStatements, Installation } from '../../control/installation.ts';
import {
  isPasskeyOrigin,
  type PasskeyPages,
  passkeyOrigins,
  rpIdOf,
} from '../../control/passkey-origins.ts';
import { mustBeFeature, tenantFeatures } from '../../control/tenant-features.ts';
import { pageAddress } from '../../lib/config/config-values.ts';
import { lengths, text } from '../../lib/http/request/fields.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { lockSpaces } from '../../lib/postgres/advisory-locks.ts';
import { withConnection } from '../../lib/postgres/connection.ts';
import { inTransaction } from '../../lib/postgres/in-transaction.ts';
import { kebabCase } from '../command/operation-fields.ts';
import { aliasesText, noSuchTenant, textOfAliases } from './read-tenants.ts';
import { slugField } from './slug-field.ts';
import { requireFreeSlug, takenMeanwhile } from './tenant-slugs.ts';

/** The days for which a former slug leads to its tenant by default. */
const defaultAliasDays = 30;

const tenantEdit = z.strictObject({
  slug: slugField.optional(),
  /** How long the former slug, or all that there are, lead to the tenant; 0: they end. */
  aliasDays: z.int().min(0).max(36_500).optional(),
  name: text({ max: lengths.name }).optional(),
  appId: text({ max: lengths.code }).optional(),
  /** The address of the pages of this tenant; `none`: that of all tenants. */
  appUrl: z.literal('none').or(pageAddress).optional(),
  /** The origins of further pages on which passkeys work, all of them; `none` alone: none. */
  passkeyOrigin: z
    .array(z.string())
    .refine(
      origins => isNone(origins) || origins.every(isPasskeyOrigin),
      'must be an origin with https and a host name, such as https://app.example.com, or none',
    ),
  /** Allows logins by a password again. The administrators of the tenant refuse them. */
  passwordLogins: z.string().pipe(z.literal('allowed', 'must be allowed')).optional(),
  enable: z.array(z.string().pipe(z.enum(tenantFeatures, mustBeFeature))),
  /** Also a name that only the tenant has, by SQL. */
  disable: z.array(z.string()),
});

/**
 * The changes of a tenant: features to enable and to disable, and others; a field that is
 * undefined stays as it is.
 */
export type TenantEdit = z.input<typeof tenantEdit>;

/** A field of a tenant that an edit changes. */
interface FieldChange {
  field:
    | 'slug'
    | 'aliases'
    | 'name'
    | 'appId'
    | 'appUrl'
    | 'passkeyOrigins'
    | 'passwordLogins'
    | 'features';
  from: string;
  to: string;
}

interface Editable {
  id: number;
  guid: string;
  status: string;
  slug: string;
  /** The aliases and the days on which they end. */
  aliases: string;
  name: string;
  appId: string;
  appUrl: string;
  passkeyOrigins: string[];
  passwordLogins: string;
  features: string[];
}

/**
 * Changes a tenant. Every process applies it within a second, as a rule (SECURITY.md). Guid and
 * the name of the database stay as they are. A former slug leads to the tenant for a time, and
 * is given to no other tenant by itself afterwards.
 * @param slug the present one
 * @param isDryRun true to return what would change, and to change nothing
 * @throws {OperatorError} when there is no such tenant, a value is not acceptable, or the new
 *   slug is that of another tenant, or was
 */
export async function editTenant(
  installation: Installation,
  slug: string,
  edit: TenantEdit,
  isDryRun: boolean,
): Promise<{ guid: string; slug: string; changes: FieldChange[]; passkeysLost: number }> {
  const { name, appId, appUrl, passkeyOrigin, passwordLogins, enable, disable, ...ofSlug } =
    parseEdit(edit);
  const tenant = await readEditable(installation, slug);

  const known: readonly string[] = [...tenantFeatures, ...tenant.features];
  if (disable.some(each => !known.includes(each))) {
    throw new OperatorError(`--disable ${mustBeFeature}`, { usage: true });
  }

  const features = [...new Set([...tenant.features, ...enable])].filter(
    each => !disable.includes(each),
  );

  const origins = isNone(passkeyOrigin) ? [] : [...new Set(passkeyOrigin)];
  const setsOrigins = passkeyOrigin.length > 0;
  const pages = {
    guid: tenant.guid,
    appUrl: appUrl ?? tenant.appUrl,
    passkeyOrigins: setsOrigins ? origins : tenant.passkeyOrigins,
  };
  const passkeysLost =
    setsOrigins || appUrl !== undefined ? await countOtherPasskeys(installation, pages) : 0;

  const slugs = await planSlugs(installation, tenant, ofSlug);
  const after = {
    slug: slugs.slug,
    aliases: slugs.aliases,
    name: name ?? tenant.name,
    appId: appId ?? tenant.appId,
    appUrl: pages.appUrl,
    passkeyOrigins: pages.passkeyOrigins.join(', ') || 'none',
    passwordLogins: passwordLogins ?? tenant.passwordLogins,
    features: features.join(', '),
  };
  const before = {
    ...tenant,
    passkeyOrigins: tenant.passkeyOrigins.join(', ') || 'none',
    features: tenant.features.join(', '),
  };

  const fields = [
    'slug',
    'aliases',
    'name',
    'appId',
    'appUrl',
    'passkeyOrigins',
    'passwordLogins',
    'features',
  ] as const;
  const changes = fields
    .map(field => ({ field, from: before[field], to: after[field] }))
    .filter(({ from, to }) => from !== to);

  if (!isDryRun) {
    await withConnection(installation.controlUrl, control =>
      inTransaction(control, async () => {
        // Without the lock, a purge that ends meanwhile would leave an alias of no tenant.
        const { rowCount } = await control.query('select from tenants where guid = $1 for update', [
          tenant.guid,
        ]);
        if (!rowCount) throw noSuchTenant(slug);

        if (ofSlug.slug !== undefined || ofSlug.aliasDays !== undefined) {
          await changeSlugs(control, tenant, ofSlug);
        }

        await control.query(
          `update tenants
              set name = coalesce($2::text, name), app_id = coalesce($3::text, app_id),
                  app_url = nullif(coalesce($4::text, app_url), 'none'), updated_at = now(),
                  passkey_origins = coalesce($7::text[], passkey_origins),
                  features = array(
                    select f from unnest(features || array(
                             select e from unnest($5::text[]) e where e <> all (features))) f
                     where f <> all ($6::text[]))
            where guid = $1`,
          [
            tenant.guid,
            name ?? null,
            appId ?? null,
            appUrl ?? null,
            [...new Set(enable)],
            disable,
            setsOrigins ? origins : null,
          ],
        );

        if (passwordLogins) {
          await control.query(
            `update sign_in_rules set password_logins = $2, changed_at = now()
              where tenant_id = $1 and password_logins <> $2`,
            [tenant.id, passwordLogins],
          );
        }
      }),
    );
  }

  return { guid: tenant.guid, slug: after.slug, changes, passkeysLost };
}

function isNone(origins: readonly string[]): boolean {
  return origins.length === 1 && origins[0] === 'none';
}

/** Counts the passkeys of a tenant that are of the host of none of its pages. */
async function countOtherPasskeys(
  { statements }: ControlStatements,
  pages: PasskeyPages,
): Promise<number> {
  const { rows } = await statements.query<{ count: number }>(
    `select count(*)::int from factors f join tenants t on t.id = f.tenant_id
      where t.guid = $1 and f.kind = 'passkey' and f.rp_id <> all ($2::text[])`,
    [pages.guid, passkeyOrigins(pages).map(rpIdOf)],
  );
  return rows[0]?.count ?? 0;
}

/** @throws {OperatorError} when there is no such tenant */
async function readEditable({ statements }: ControlStatements, slug: string): Promise<Editable> {
  const { rows } = await statements.query<Editable>(
    `select id::float8, guid, status, slug, name, app_id as "appId", coalesce(app_url, 'none') as "appUrl", passkey_origins as "passkeyOrigins", features,
            coalesce((select password_logins from sign_in_rules where tenant_id = tenants.id), 'allowed') as "passwordLogins",
            ${aliasesText('tenants.guid')} as aliases
       from tenants where slug = $1`,
    [slug],
  );
  const [tenant] = rows;
  if (!tenant) throw noSuchTenant(slug);

  return tenant;
}

type SlugEdit = Pick<z.output<typeof tenantEdit>, 'slug' | 'aliasDays'>;

/**
 * Returns the slug and the aliases that a tenant would have.
 * @throws {OperatorError} when it cannot have the slug
 */
async function planSlugs(
  control: ControlStatements,
  { guid, status, slug: present, aliases }: Editable,
  { slug = present, aliasDays }: SlugEdit,
): Promise<{ slug: string; aliases: string }> {
  if (slug === present && aliasDays === undefined) return { slug, aliases };

  if (slug !== present && status === 'provisioning') {
    throw new OperatorError(
      `${present} is not ready yet. Complete it first: bin/backoffice provision`,
    );
  }
  if (slug !== present) await requireFreeSlug(control, slug, guid);

  const { rows } = await control.statements.query<{ aliases: string }>(
    `with planned as (
       select slug, case when slug = $1 or $2::boolean then now() + make_interval(days => $3) else alias_until end as alias_until
         from tenant_slugs where tenant_guid = $4 and slug <> $5)
     select ${textOfAliases} as aliases from planned where alias_until > now()`,
    [present, slug === present, aliasDays ?? defaultAliasDays, guid, slug],
  );
  const [planned] = rows;

  return { slug, aliases: planned?.aliases ?? '' };
}

/**
 * Changes the slug of a tenant, while no other command works on it: commands find it by its
 * slug.
 * @throws {OperatorError} when another command works on it, or the slug was taken meanwhile
 */
async function changeSlugs(
  control: pg.Client,
  { id, guid, slug: present }: Editable,
  { slug = present, aliasDays = defaultAliasDays }: SlugEdit,
): Promise<void> {
  if (slug === present) {
    await control.query(
      `update tenant_slugs set alias_until = now() + make_interval(days => $2)
        where tenant_guid = $1 and alias_until is not null`,
      [guid, aliasDays],
    );
    return;
  }

  const { rowCount } = await control.query(
    `select from tenants
      where id = $2 and slug = $3 and pg_try_advisory_xact_lock($1::int, id::int)
        and purging_at is null and not exists (select from tenant_fences where tenant_guid = guid)
        for update`,
    [lockSpaces.tenant, id, present],
  );
  if (!rowCount) {
    throw new OperatorError(
      `Another command works on ${present} at the moment, or was killed: nothing was changed. Wait until it has ended, ` +
        `or put the tenant back into service: bin/backoffice databases prune ${present}`,
    );
  }

  await control
    .query('update tenants set slug = $2, updated_at = now() where id = $1', [id, slug])
    .catch(error => {
      throw takenMeanwhile(error, slug);
    });

  await control.query(
    `update tenant_slugs set alias_until = now() + make_interval(days => $2) where slug = $1`,
    [present, aliasDays],
  );
}

function parseEdit(edit: TenantEdit): z.output<typeof tenantEdit> {
  const parsed = tenantEdit.safeParse(edit);
  if (!parsed.success) {
    const faults = parsed.error.issues.map(
      ({ path: [field], message }) => `--${kebabCase(String(field))} ${message}`,
    );
    throw new OperatorError([...new Set(faults)].join('; '), { usage: true });
  }

  const { slug, aliasDays, name, appId, appUrl, passkeyOrigin, passwordLogins, enable, disable } =
    parsed.data;
  if (
    [slug, aliasDays, name, appId, appUrl, passwordLogins].every(value => value === undefined) &&
    passkeyOrigin.length + enable.length + disable.length === 0
  ) {
    throw new OperatorError(
      'Name what to change: --slug, --alias-days, --name, --app-id, --app-url, --passkey-origin, --password-logins, --enable or --disable',
      { usage: true },
    );
  }

  const both: string[] = enable.filter(each => disable.includes(each));
  if (both.length > 0) {
    throw new OperatorError(`Either enable or disable ${both.join(', ')}`, { usage: true });
  }

  return parsed.data;
}
