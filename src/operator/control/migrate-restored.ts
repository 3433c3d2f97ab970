import type pg from 'pg';
import { withConnection } from '../../postgres/connection.ts';
import { inTransaction } from '../../postgres/in-transaction.ts';
import { migrateControl } from '../schema/migrate-control.ts';

/** A database that an unfinished move of an earlier build was making. */
interface MadeDatabase {
  tenantId: string;
  serverId: number;
  database: string;
  role: string;
  password: Buffer;
}

/**
 * Brings a restored control database, which nobody uses yet, to the version of this build. What an earlier build was doing
 * at that time is given up, because that build may be gone with its machine; on a control database in use, the migration
 * refuses instead. No database is dropped: what has become of each since is not known.
 *
 * - A move: the tenant has the database that it had. The new one is kept beside it.
 * - A tenant that was restored beside another one is deleted, which `npx backoffice restore` undoes.
 * - A tenant whose lost database was being restored is suspended: its database may be empty.
 * - The fence of a swap is lifted.
 *
 * @returns what was given up, in sentences
 */
export async function migrateRestored(url: string): Promise<string[]> {
  const { givenUp, made } = await withConnection(url, async client => {
    const { rows } = await client.query<{ exists: boolean }>(
      `select to_regclass('restored_tenants') is not null and to_regclass('tenant_moves') is not null as exists`,
    );
    return rows[0]?.exists ? inTransaction(client, () => giveUp(client)) : { givenUp: [], made: [] };
  });
  await migrateControl(url);
  await withConnection(url, async client => {
    for (const { tenantId, serverId, database, role, password } of made)
      await client.query(
        `insert into tenant_databases (tenant_id, server_id, database_name, role_name, role_password, state, kept_by, origin)
         select $1, $2, $3, $4, $5, 'kept', 'back', 'unfinished move'
          where not exists (select from tenant_databases where database_name = $3 and state <> 'gone')`,
        [tenantId, serverId, database, role, password],
      );
  });
  return givenUp;
}

async function giveUp(client: pg.Client): Promise<{ givenUp: string[]; made: MadeDatabase[] }> {
  const named = async (sentence: string, text: string): Promise<string[]> =>
    (await client.query<{ slug: string }>(text)).rows.map(({ slug }) => `${slug} ${sentence}`);
  const { rows: made } = await client.query<MadeDatabase>(
    `select tenant_id as "tenantId", to_server_id as "serverId", to_database as database, to_role as role,
            to_password as password
       from tenant_moves where state not in ('switched', 'settling', 'settled', 'aborted')`,
  );
  const givenUp = [
    ...(await named(
      'was being moved: it has the database that it had. See npx backoffice databases',
      `update tenant_moves set state = case state when 'settling' then 'switched' else 'aborted' end
         from tenants t where t.id = tenant_id and state not in ('switched', 'settled', 'aborted') returning slug`,
    )),
    ...(await named(
      'was restored beside another tenant: it is deleted. Purge it, or bring it back: npx backoffice restore',
      `update tenants set status = case status when 'provisioning' then status else 'deleted' end
        where id in (select tenant_id from restored_tenants) returning slug`,
    )),
    ...(await named(
      'had lost its database, which was being restored: it is suspended, and its database may be empty. Look into it. ' +
        'If it is, rename it, and then: npx backoffice restore <slug> --lost; npx backoffice resume <slug>',
      `update tenants set restoring = null, status = case status when 'active' then 'suspended' else status end
        where restoring is not null returning slug`,
    )),
  ];
  await client.query('delete from restored_tenants; delete from tenant_fences');
  return { givenUp: givenUp.sort(), made };
}
