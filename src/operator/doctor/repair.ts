import type { Server } from '../../control/control-entities.ts';
import type { Installation } from '../../installation.ts';
import { withConnection } from '../../postgres/connection.ts';
import { sqlState } from '../../postgres/database-error.ts';
import { errorText } from '../command/texts.ts';
import type { Finding } from './finding.ts';
import type { ReportedFinding } from './reports.ts';

/** SQLSTATE of the warning with which REVOKE has no effect: the login has not granted the right. */
const notRevoked = '01006';

/** Runs the statements that repair a finding. `fixed` is false when it has none, or one of them failed. */
export async function repair(
  { servers }: Installation,
  server: Server,
  finding: Finding,
): Promise<Pick<ReportedFinding, 'fixed' | 'remedy'>> {
  const { remedy } = finding;
  if (!finding.repair) return { fixed: false, remedy };
  const { database, statements } = finding.repair;
  try {
    await withConnection(servers.adminUrl(server, database), async client => {
      const warnings: string[] = [];
      client.on('notice', ({ code, message = '' }) => code === notRevoked && warnings.push(message));
      for (const statement of statements) await client.query(statement);
      if (warnings.length > 0) throw Object.assign(new Error(warnings.join('; ')), { code: '42501' });
    });
    return { fixed: true, remedy };
  } catch (error) {
    return {
      fixed: false,
      remedy:
        sqlState(error) === '42501'
          ? forSuperuser(finding.repair, errorText(error))
          : `Repair it yourself; doctor --fix failed: ${errorText(error)}`,
    };
  }
}

/** Shows no statement with the verifier of a password. */
function forSuperuser({ database, statements }: NonNullable<Finding['repair']>, reason: string): string {
  if (statements.some(statement => statement.includes('password')))
    return `Give the login of this command the right to do it, as a superuser; it may not (${reason})`;
  const place = database === undefined ? '' : ` in database ${database}`;
  return `Let a superuser of the server run${place}: ${statements.join('; ')};`;
}
