import { OperatorError } from '../../lib/log/operator-error.ts';
import { sqlState } from '../../lib/postgres/database-error.ts';

const insufficientPrivilege = '42501';

/**
 * Returns an error that names the next step when a command has failed because the login of
 * `DATABASE_URL` lacks the rights of an operator in the control database; every other error as
 * it is.
 */
export async function explainLogin(error: unknown): Promise<unknown> {
  const cause = error instanceof OperatorError ? error.cause : error;
  if (sqlState(cause) !== insufficientPrivilege) return error;

  const { readConfig } = await import('../../lib/config/config.ts');
  const { databaseUrl } = readConfig();
  if (databaseUrl === undefined) return error;

  const { isServiceLogin, operatorLoginText } = await import('../schema/service-login.ts');
  if (isServiceLogin(databaseUrl)) {
    return new OperatorError(operatorLoginText, { cause });
  }

  const statement = await findMissingGrant(databaseUrl).catch(() => undefined);
  if (statement === undefined) return error;

  const { psqlCommand } = await import('../doctor/psql-command.ts');
  return new OperatorError(
    `The login ${statement.login} may not use the control database, which ${statement.owner} owns. ` +
      `As a superuser: ${psqlCommand(statement.grant)}`,
    { cause },
  );
}

/**
 * Returns the grant that makes the login of a URL a member of the owner of its database;
 * undefined if it is a member already, or the grant would make it a superuser.
 */
async function findMissingGrant(
  url: string,
): Promise<{ login: string; owner: string; grant: string } | undefined> {
  const { databaseNameOf, databaseUrl } = await import('../../control/server-urls.ts');
  const { withConnection } = await import('../../lib/postgres/connection.ts');
  const name = databaseNameOf(url);
  // The login may lack even the right to connect to the control database.
  const { rows } = await withConnection(databaseUrl(url, 'postgres'), client =>
    client.query<{ login: string; owner: string; grant: string }>(
      `select current_user as login, pg_get_userbyid(datdba) as owner,
              format('grant %I to %I', pg_get_userbyid(datdba), current_user) as grant
         from pg_database join pg_roles r on r.oid = datdba
        where datname = $1 and not rolsuper and not pg_has_role(datdba, 'usage')`,
      [name],
    ),
  );

  return rows[0];
}
