import { quoteIdentifier as quote } from '../../postgres/quote.ts';
import { isPhysicalName } from '../databases/database-names.ts';
import { asOwner, type CheckContext } from './check-context.ts';

/** The databases of every PostgreSQL server. They have no data, and PostgreSQL lets every login connect to them. */
const installed = ['postgres', 'template1'];

/** Checks that PUBLIC has no privileges on databases: the login role of every tenant would have them too. */
export function checkPublicAccess(context: CheckContext): void {
  const { server, tenants, facts, report } = context;
  const slugs = new Map(tenants.map(({ databaseName, slug }) => [databaseName, slug]));
  const open: string[] = [];
  for (const { name, grants, open: isOpen, broken } of facts.databases.values()) {
    const granted = grants.filter(({ grantee }) => grantee === 'public').map(({ privilege }) => privilege);
    if (granted.length === 0 || broken || !isOpen) continue;
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
    else if (!granted.includes('CONNECT')) continue;
    else if (installed.includes(name) || isOfUrl(name, context)) open.push(name);
    else
      report({
        check: 'public_access',
        problem,
        remedy: `If nothing else needs it, revoke it${asOwner(facts, name)}: ${revoke};`,
      });
  }
  if (open.length > 0) reportInstalled(open, context);
}

/** True for the database that the URL of an added server names: the commands connect to it, and store nothing there. */
function isOfUrl(name: string, { server, facts }: CheckContext): boolean {
  return server.adminUrl !== null && name === facts.connectedTo;
}

/** One warning for a server as PostgreSQL installs it. */
function reportInstalled(names: string[], { facts, report }: CheckContext): void {
  const foreign = names.find(name => !facts.databases.get(name)?.isOwn);
  const who = foreign === undefined ? '' : asOwner(facts, foreign);
  report({
    check: 'default_access',
    problem: `every login of the server may connect to ${names.join(' and ')}, as PostgreSQL grants by default`,
    remedy: `If nothing else needs it, revoke it${who}: revoke all on database ${names.map(quote).join(', ')} from public;`,
  });
}
