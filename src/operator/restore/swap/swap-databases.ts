import type pg from 'pg';
import type { Tenant } from '../../../control/fleet-entities.ts';
import { databaseUrl } from '../../../control/server-urls.ts';
import type { Installation } from '../../../installation.ts';
import { OperatorError } from '../../../operator-error.ts';
import { withConnection } from '../../../postgres/connection.ts';
import { quoteIdentifier } from '../../../postgres/quote.ts';
import { roleComment } from '../../provisioning/tenant-database.ts';
import { becomeMember, endSessions } from '../../schema/tenant-sessions.ts';

/** The two tenants whose databases are exchanged. */
export type Pair = readonly [Tenant, Tenant];

/** Closes the connected database of a tenant: its stamp names `next`, and its login is refused. */
export async function closeDatabase(database: pg.Client, tenant: Tenant, next: Tenant): Promise<void> {
  await database.query('begin');
  await stampAs(database, next, [tenant, next]);
  await database.query(`alter role ${quoteIdentifier(tenant.roleName)} nologin`);
  await database.query('commit');
}

/** Gives the connected database of a tenant, which is not served, to `next`. */
export async function handOver(database: pg.Client, tenant: Tenant, next: Tenant): Promise<void> {
  await becomeMember(database, tenant.roleName);
  await endSessions(database, tenant.roleName); // of the time before it was suspended
  await stampAs(database, next, [tenant, next]);
  await database.query(roleComment({ ...tenant, guid: next.guid }));
}

/** Makes stamp and login of the database of each tenant agree with the control database. */
export async function openDatabases(installation: Installation, pair: Pair): Promise<void> {
  for (const owner of pair)
    await inDatabase(installation, owner, async database => {
      await database.query('begin');
      await stampAs(database, owner, pair);
      await database.query(`alter role ${quoteIdentifier(owner.roleName)} login; ${roleComment(owner)}`);
      await database.query('commit');
    });
}

/** Lets the connected database name its tenant. @throws {OperatorError} when it belongs to neither of the pair */
async function stampAs(database: pg.Client, owner: Tenant, pair: Pair): Promise<void> {
  const { rowCount } = await database.query('update tenant_identity set guid = $1 where guid in ($2, $3)', [
    owner.guid,
    pair[0].guid,
    pair[1].guid,
  ]);
  if (!rowCount) throw new OperatorError('the database belongs to another tenant: run npx backoffice doctor');
}

/** Runs `work` on the database of a tenant, with the rights of the operator. */
export function inDatabase<T>(
  { servers }: Pick<Installation, 'servers'>,
  { server, databaseName }: Tenant,
  work: (database: pg.Client) => Promise<T>,
): Promise<T> {
  return withConnection(databaseUrl(servers.adminUrl(server), databaseName), work);
}
