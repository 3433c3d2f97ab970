import { migrationNames } from '../../postgres/migration-names.ts';

/** Returns the name of the last tenant migration of this build: the version of a tenant database at head. */
export async function tenantHead(): Promise<string> {
  return (await migrationNames('tenant')).at(-1) ?? '';
}
