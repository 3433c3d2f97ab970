import type { Server } from '../../control/fleet-entities.ts';
import { databaseUrl } from '../../control/server-urls.ts';
import type { Installation } from '../../installation.ts';
import { withConnection } from '../../postgres/connection.ts';
import { errorText } from '../command/error-text.ts';
import type { Finding } from './finding.ts';

/** Runs the statements that repair a finding. `fixed` is false when it has none, or one of them failed. */
export async function repair(
  { servers }: Installation,
  server: Server,
  finding: Finding,
): Promise<Finding & { fixed: boolean }> {
  if (!finding.repair) return { ...finding, fixed: false };
  const { database, statements } = finding.repair;
  try {
    const adminUrl = servers.adminUrl(server);
    await withConnection(database ? databaseUrl(adminUrl, database) : adminUrl, async client => {
      for (const statement of statements) await client.query(statement);
    });
    return { ...finding, fixed: true };
  } catch (error) {
    return { ...finding, fixed: false, remedy: `Repair it yourself; doctor --fix failed: ${errorText(error)}` };
  }
}
