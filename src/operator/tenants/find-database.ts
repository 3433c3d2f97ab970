import type { Installation } from '../../installation.ts';
import { withConnection } from '../../postgres/connection.ts';

/**
 * Returns whether the server of a tenant has its database; false also for one that is half dropped.
 * @returns undefined as `exists` when the server cannot be queried within seconds
 */
export async function findDatabase(
  { statements, servers }: Pick<Installation, 'servers' | 'statements'>,
  guid: string,
): Promise<{ server: string; exists: boolean | undefined }> {
  const [tenant] = await statements.execute<[{ database: string; server: string; adminUrl: Buffer | null }]>(
    `select database_name as database, s.name as server, admin_url as "adminUrl"
       from tenants t join servers s on s.id = server_id where guid = ?`,
    [guid],
  );
  const { database, server, adminUrl } = tenant;
  const find = async (): Promise<boolean> =>
    withConnection(
      servers.adminUrl({ name: server, adminUrl }),
      async admin => {
        const text = 'select from pg_database where datname = $1 and datconnlimit <> -2';
        return (await admin.query(text, [database])).rowCount === 1;
      },
      { kind: 'probe' },
    );
  return { server, exists: await find().catch(() => undefined) };
}
