import { OperatorError } from '../lib/log/operator-error.ts';
import { migrationNames } from '../lib/postgres/migration-names.ts';
import type { Tenant } from './control-entities.ts';

/**
 * Returns the name of the last tenant migration of this build: the version of a tenant database
 * at head.
 */
export async function tenantHead(): Promise<string> {
  return (await migrationNames('tenant')).at(-1) ?? '';
}

/** @throws {OperatorError} when a tenant is at another version */
export async function requireTenantHead({
  slug,
  schemaVersion,
}: Pick<Tenant, 'slug' | 'schemaVersion'>): Promise<void> {
  if (schemaVersion !== (await tenantHead())) {
    throw new OperatorError(
      `${slug} is not at the version of this build. Migrate it first: ` +
        `bin/backoffice migrate ${slug}`,
    );
  }
}
