import type pg from 'pg';
import { quoteIdentifier as quote, quoteLiteral } from '../../lib/postgres/quote.ts';
import { enabledSubscriptions } from '../../tenancy/connections/tenant-identity.ts';
import type { Report } from './finding.ts';

/**
 * Reports what logical replication, or the restore of a dump, has left in a database: a
 * subscription that still writes to it, transaction ids that the counter of its cluster has not
 * reached, and sequences behind the rows.
 * @param client on the tenant's database
 * @param role the login of the tenant
 */
export async function checkCluster(
  client: pg.Client,
  role: string,
  report: (report: Omit<Report, 'tenant'>) => void,
): Promise<void> {
  const subscriptions = await client.query<{ name: string }>(enabledSubscriptions);
  for (const { name } of subscriptions.rows) {
    report({
      check: 'replicated_database',
      problem: `subscription ${name} writes the changes of another database to this one: the service does not serve it`,
      remedy:
        'When nothing is written to the other database any more, and this one has caught up, disable it',
      statements: [`alter subscription ${quote(name)} disable`],
      kind: 'named',
    });
  }

  const { rows } = await client.query<{ isAhead: boolean }>(
    'select has_ids_from(pg_snapshot_xmax(pg_current_snapshot())) as "isAhead"',
  );
  if (rows[0]?.isAhead) {
    report({
      check: 'rows_from_future',
      problem:
        'the database has rows from the future of this server: their transaction ids are ahead of its counter, so the feed and the webhooks would skip new changes',
      remedy: 'Begin a new era of the feed: clients copy the records again, and webhooks get a gap',
      statements: [membershipOf(role), `select enter_cluster(${quoteLiteral(role)})`],
    });
  }

  const sequences = await client.query<{ name: string; value: string }>(
    'select name, value from late_sequences()',
  );
  for (const { name, value } of sequences.rows) {
    report({
      check: 'sequence_behind',
      problem: `sequence ${name} is behind its rows, which have ${value}: the next insert would fail`,
      remedy: 'Set it to the value that the rows have',
      statements: [`select setval(${quoteLiteral(name)}, ${value})`],
    });
  }
}

/** Lets the operator end sessions of the login of the tenant, as `becomeMember` does. */
function membershipOf(role: string): string {
  return `do $$ begin
    if not pg_has_role(${quoteLiteral(role)}, 'usage') then
      grant ${quote(role)} to current_user;
    end if;
  end $$`;
}
