import { databaseNameOf } from '../../control/server-urls.ts';
import { quoteIdentifier as quote } from '../../lib/postgres/quote.ts';
import type { CheckContext } from './check-context.ts';

/**
 * Reports databases of this installation whose texts the C library, or ICU, of the server sorts
 * in another way than when their indexes were made: a search by an index misses rows, and a
 * unique index accepts the same text twice. The template of the server is not among them: the
 * next command that copies it makes it anew.
 * @param controlUrl URL of the control database
 */
export function checkCollations(
  { server, tenants, control, facts, report }: CheckContext,
  controlUrl: string,
): void {
  const slugs = new Map(tenants.map(({ databaseName, slug }) => [databaseName, slug]));
  for (const { database, serverId, tenantId, state } of control.databases) {
    const isUnused = serverId === server.id && (state === 'filled' || state === 'kept');
    const slug = isUnused ? control.tenants.find(({ id }) => id === tenantId)?.slug : undefined;
    if (slug) slugs.set(database, slug);
  }
  const ofControl = server.adminUrl === null ? [databaseNameOf(controlUrl)] : [];

  for (const name of [...ofControl, ...slugs.keys()]) {
    const { collation, broken, open } = facts.databases.get(name) ?? {};
    if (!collation || broken || !open) continue;

    report({
      check: 'old_collation',
      tenant: slugs.get(name),
      problem:
        `the indexes of database ${name} have texts in the order of version ` +
        `${collation.recorded} of its collation, and the server sorts them as version ` +
        `${collation.actual}: a search may miss records, and a code may be there twice`,
      remedy:
        'When few work in it, as changes wait meanwhile, make its indexes anew and record the ' +
        'version',
      statements: [
        `reindex database ${quote(name)}`,
        `alter database ${quote(name)} refresh collation version`,
      ],
      kind: 'named',
      database: name,
      changes: name,
    });
  }
}
