import { quoteIdentifier as quote } from '../../lib/postgres/quote.ts';
import { isPhysicalName } from '../databases/store/database-names.ts';
import type { CheckContext } from './check-context.ts';

/**
 * Checks that PUBLIC has no privileges on the databases of this installation: the login role of
 * every tenant would have them too. Other databases belong to others, such as a provider of
 * servers.
 */
export function checkPublicAccess({ server, tenants, control, facts, report }: CheckContext): void {
  const slugs = new Map(tenants.map(({ databaseName, slug }) => [databaseName, slug]));
  const recorded = new Set(
    control.databases.filter(each => each.serverId === server.id).map(each => each.database),
  );

  for (const { name, grants, open, broken } of facts.databases.values()) {
    const isControl = server.adminUrl === null && name === facts.connectedTo;
    const isOurs =
      isControl || recorded.has(name) || slugs.has(name) || isPhysicalName(server, name);
    const granted = grants
      .filter(({ grantee }) => grantee === 'public')
      .map(({ privilege }) => privilege);
    if (!isOurs || granted.length === 0 || broken || !open) continue;

    report({
      check: 'public_access',
      tenant: slugs.get(name),
      problem: `every login of the server has ${granted.join(', ')} on database ${name}`,
      remedy: `Revoke ${granted.join(', ')} on database ${name} from PUBLIC`,
      statements: [`revoke all on database ${quote(name)} from public`],
      changes: name,
    });
  }
}
