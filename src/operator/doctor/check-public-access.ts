import { quoteIdentifier as quote } from '../../postgres/quote.ts';
import { isPhysicalName } from '../databases/physical-names.ts';
import type { CheckContext } from './check-context.ts';

/** Checks that PUBLIC has no privileges on databases: the login role of every tenant would have them too. */
export function checkPublicAccess({ server, tenants, facts, report }: CheckContext): void {
  const slugs = new Map(tenants.map(({ databaseName, slug }) => [databaseName, slug]));
  for (const { name, grants, open, broken } of facts.databases.values()) {
    const granted = grants.filter(({ grantee }) => grantee === 'public').map(({ privilege }) => privilege);
    if (granted.length === 0 || broken || !open) continue;
    const tenant = slugs.get(name);
    const problem = `every login of the server has ${granted.join(', ')} on database ${name}`;
    const revoke = `revoke all on database ${quote(name)} from public`;
    if (tenant !== undefined || isPhysicalName(server, name))
      report({
        check: 'public_access',
        tenant,
        problem,
        remedy: `Revoke ${granted.join(', ')} on database ${name} from PUBLIC`,
        statements: [revoke],
        changes: name,
      });
    else if (granted.includes('CONNECT'))
      report({ check: 'public_access', problem, remedy: `If nothing else needs it, revoke it: ${revoke};` });
  }
}
