import type { TenantRecord } from '../../control/records.ts';
import { preparedStatement } from '../../lib/postgres/statement.ts';
import { requestDeadlineMs, withDeadline } from '../../lib/runtime/deadline.ts';
import type { ContextServices } from '../../tenancy/request-context.ts';

/**
 * Returns the hosts and ports of the webhooks that a user has made or changed last, and that are
 * enabled, or were until the user lost the rights. The rest of a URL may contain a secret.
 */
export async function readWebhooksOf(
  databases: ContextServices['databases'],
  tenant: TenantRecord,
  userId: number,
): Promise<string[]> {
  const statement = preparedStatement<{ url: string }>(
    `select url from webhooks where user_id = $1 and (is_enabled or disabled_reason = 'rights') order by id`,
    [userId],
  );
  const rows = await withDeadline(requestDeadlineMs, deadline =>
    databases.open(tenant).reads.read(statement, deadline),
  );

  return rows.map(({ url }) => new URL(url).host);
}
