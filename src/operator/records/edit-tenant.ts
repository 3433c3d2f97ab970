import { z } from 'zod';
import type { ControlStatements } from '../../control/installation.ts';
import { mustBeFeature, tenantFeatures } from '../../control/tenant-features.ts';
import { pageAddress } from '../../lib/config/config-values.ts';
import { lengths, text } from '../../lib/http/fields.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { kebabCase } from '../command/operation-fields.ts';
import { noSuchTenant } from './read-tenants.ts';

const tenantEdit = z.strictObject({
  name: text({ max: lengths.name }).optional(),
  appId: text({ max: lengths.code }).optional(),
  /** The address of the pages of this tenant; `none`: that of all tenants. */
  appUrl: z.literal('none').or(pageAddress).optional(),
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
  field: 'name' | 'appId' | 'appUrl' | 'features';
  from: string;
  to: string;
}

interface Editable {
  guid: string;
  name: string;
  appId: string;
  appUrl: string;
  features: string[];
}

/**
 * Changes a tenant. Every process applies it within a second, as a rule (SECURITY.md). Slug,
 * guid and the name of the database stay as they are.
 * @param isDryRun true to return what would change, and to change nothing
 * @throws {OperatorError} when there is no such tenant, or a value is not acceptable
 */
export async function editTenant(
  { statements }: ControlStatements,
  slug: string,
  edit: TenantEdit,
  isDryRun: boolean,
): Promise<{ guid: string; changes: FieldChange[] }> {
  const { name, appId, appUrl, enable, disable } = parseEdit(edit);

  const [tenant] = await statements.execute<Editable[]>(
    `select guid, name, app_id as "appId", coalesce(app_url, 'none') as "appUrl", features from tenants where slug = ?`,
    [slug],
  );
  if (!tenant) throw noSuchTenant(slug);

  const known: readonly string[] = [...tenantFeatures, ...tenant.features];
  if (disable.some(each => !known.includes(each))) {
    throw new OperatorError(`--disable ${mustBeFeature}`, { usage: true });
  }

  const features = [...new Set([...tenant.features, ...enable])].filter(
    each => !disable.includes(each),
  );

  const after = {
    name: name ?? tenant.name,
    appId: appId ?? tenant.appId,
    appUrl: appUrl ?? tenant.appUrl,
    features: features.join(', '),
  };
  const before = { ...tenant, features: tenant.features.join(', ') };

  const fields = ['name', 'appId', 'appUrl', 'features'] as const;
  const changes = fields
    .map(field => ({ field, from: before[field], to: after[field] }))
    .filter(({ from, to }) => from !== to);

  if (!isDryRun) {
    await statements.execute(
      `update tenants
          set name = coalesce(?::text, name), app_id = coalesce(?::text, app_id),
              app_url = nullif(coalesce(?::text, app_url), 'none'), updated_at = now(),
              features = array(
                select f from unnest(features || array(
                         select e from jsonb_array_elements_text(?::jsonb) e where e <> all (features))) f
                 where f not in (select jsonb_array_elements_text(?::jsonb)))
        where slug = ?`,
      [
        name ?? null,
        appId ?? null,
        appUrl ?? null,
        JSON.stringify([...new Set(enable)]),
        JSON.stringify(disable),
        slug,
      ],
    );
  }

  return { guid: tenant.guid, changes };
}

function parseEdit(edit: TenantEdit): z.output<typeof tenantEdit> {
  const parsed = tenantEdit.safeParse(edit);
  if (!parsed.success) {
    const faults = parsed.error.issues.map(
      ({ path: [field], message }) => `--${kebabCase(String(field))} ${message}`,
    );
    throw new OperatorError([...new Set(faults)].join('; '), { usage: true });
  }

  const { name, appId, appUrl, enable, disable } = parsed.data;
  if (
    [name, appId, appUrl].every(value => value === undefined) &&
    enable.length + disable.length === 0
  ) {
    throw new OperatorError(
      'Name what to change: --name, --app-id, --app-url, --enable or --disable',
      { usage: true },
    );
  }

  const both: string[] = enable.filter(each => disable.includes(each));
  if (both.length > 0) {
    throw new OperatorError(`Either enable or disable ${both.join(', ')}`, { usage: true });
  }

  return parsed.data;
}
