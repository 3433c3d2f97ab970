import type pg from 'pg';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../log/operator-error.ts';
import { withConnection } from '../../postgres/connection.ts';
import { canonicalTextSettings } from '../schema/table-checksums.ts';
import { tenantHead } from '../schema/tenant-head.ts';
import { compareDatabases, type TableDifference } from './compare-databases.ts';
import { readCurrent, readDatabases, type TenantDatabase } from './database-store.ts';
import { runDatabases } from './run-databases.ts';
import { chooseOther } from './switch-database.ts';
import { withTenant } from './with-tenant.ts';

/** How the data of a tenant differs from that of a database beside it. */
export interface DatabaseDifference {
  tenant: string;
  database: string;
  /** What its data is from. */
  origin: string;
  tables: TableDifference[];
}

/**
 * Compares the present data of a tenant with restored data beside it, or, after a swap, with the former data: what the
 * newer one has added, changed and removed.
 * @throws {OperatorError} when nothing is beside it, or the tenant is not at the version of this build
 */
export async function diffDatabases(
  installation: Installation,
  slug: string,
  name: string | undefined,
): Promise<DatabaseDifference> {
  return withTenant(installation, slug, async (control, tenant) => {
    const current = await readCurrent(control, tenant.id);
    const other = chooseOther(slug, await readDatabases(control, tenant.id, ['filled', 'kept']), name);
    if (!current) throw new OperatorError(`${slug} has no database`);
    await requireHead(control, tenant.id, slug);
    if (other.schemaVersion !== (await tenantHead()))
      await runDatabases({ installation, control, tenant }, 'upgrade', { target: other });
    // After a swap, the former data is the newer one.
    const [now, before] = other.keptBy === 'swap' ? [other, current] : [current, other];
    const tables = await connect(installation, now, client =>
      connect(installation, before, earlier => compareDatabases(client, earlier)),
    );
    return { tenant: slug, database: other.database, origin: other.origin, tables };
  });
}

async function requireHead(control: pg.Client, tenantId: number, slug: string): Promise<void> {
  const { rowCount } = await control.query('select from tenants where id = $1 and schema_version = $2', [
    tenantId,
    await tenantHead(),
  ]);
  if (!rowCount)
    throw new OperatorError(`${slug} is not at the version of this build. Migrate it: npx backoffice migrate ${slug}`);
}

function connect<T>(
  { servers }: Installation,
  { server, database }: TenantDatabase,
  work: (client: pg.Client) => Promise<T>,
): Promise<T> {
  return withConnection(servers.adminUrl(server, database), work, {
    settings: { ...canonicalTextSettings },
  });
}
