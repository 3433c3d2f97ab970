import { OperatorError } from '../lib/log/operator-error.ts';
import { migrationNames } from '../lib/postgres/migration-names.ts';
import type { Queryable } from '../lib/postgres/shared-connection.ts';
import type { Tenant } from './control-entities.ts';
import { LaterBuildError } from './later-build.ts';

/**
 * Returns the name of the last tenant migration of this build: the version of a tenant database
 * at head.
 */
export async function tenantHead(): Promise<string> {
  return (await migrationNames('tenant')).at(-1) ?? '';
}

type VersionedTenant = Pick<Tenant, 'slug' | 'schemaVersion'>;

/**
 * @throws {LaterBuildError} when a later build has migrated the tenant
 * @throws {OperatorError} when this build has to migrate it first
 */
export async function requireTenantHead(tenant: VersionedTenant): Promise<void> {
  const { slug, schemaVersion } = tenant;
  if (schemaVersion === (await tenantHead())) return;

  await requireNoLaterBuild(tenant);
  throw new OperatorError(
    `${slug} is not at the version of this build. Migrate it first: ` +
      `bin/backoffice migrate ${slug}`,
  );
}

/** @throws {LaterBuildError} when a later build has migrated the tenant */
export async function requireNoLaterBuild({ slug, schemaVersion }: VersionedTenant): Promise<void> {
  if (schemaVersion && schemaVersion > (await tenantHead())) {
    throw new LaterBuildError(slug, schemaVersion);
  }
}

/**
 * Requires that a command, and its plan, work on no tenant that a later build has migrated.
 * @param slugs of the tenants; undefined: all
 * @throws {LaterBuildError} that names the first such tenant
 */
export async function requireNoneLater(
  control: Queryable,
  slugs: readonly string[] | undefined,
): Promise<void> {
  const { rows } = await control.query<{ slug: string; version: string }>(
    `select slug, schema_version as version from tenants
      where schema_version > $1 and ($2::text[] is null or slug = any ($2)) order by slug limit 1`,
    [await tenantHead(), slugs],
  );
  const [later] = rows;
  if (later) throw new LaterBuildError(later.slug, later.version);
}
