import type pg from 'pg';
import type { ControlStatements } from '../../control/installation.ts';
import { databaseNameOf, databaseUrl } from '../../control/server-urls.ts';
import { parsePostgresUrl } from '../../lib/config/postgres-url.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { lockSpaces, withLock } from '../../lib/postgres/advisory-locks.ts';
import { sqlState } from '../../lib/postgres/database-error.ts';
import { quoteIdentifier, quoteLiteral } from '../../lib/postgres/quote.ts';
import { scramVerifier } from '../../lib/postgres/scram.ts';
import { findLoginFault, type Login, refusedLoginError, requireLogin } from './login-fault.ts';

/** The default of PostgreSQL, and the minimum that RFC 7677 §4 recommends. */
const scramIterations = 4_096;
const readAndWrite = 'select, insert, update, delete';

/**
 * The privileges of the service in the control database: those that its requests need, and none
 * that could give it further rights. It cannot change a tenant or an audit entry, nor read the
 * URLs with which the command line creates databases. It may listen to the change feed, as
 * every login that can connect. A table that is not here is out of reach of the service: its
 * requests then get 503 `unavailable` (SQLSTATE 42501). Tests run the service with this login.
 */
const privileges: Record<string, string> = {
  migrations: 'select',
  installation: 'select',
  servers: 'select (id, name, prefix, address, on_control_server, identity, capacity, created_at)',
  tenants: 'select',
  tenant_slugs: 'select',
  // for the metrics
  migration_runs: 'select',
  migration_outcomes: 'select (run_id, state)',
  backup_runs: 'select (id, state, started_at, finished_at, not_removed)',
  archives: 'select (target, tenant_guid, archived_at, state, proved_at, fault)',
  purged_tenants: 'select (archives)',
  signing_keys: 'select',
  roles:
    'select, insert, delete, update (name, permissions, requires_second_factor, revokes_sessions)',
  users:
    'select, insert, delete, ' +
    'update (email, password_hash, first_name, last_name, role_id, scope, entity_id, entity_since, invited_at, confirmed_at, disabled_at, networks, must_set_up_factor)',
  program_keys: 'select, insert, delete, update (revoked_at, last_used_at)',
  factors:
    'select, insert, delete, update (name, last_step, sign_count, confirmed_at, last_used_at, held_at)',
  recovery_codes: 'select, insert, delete, update (used_at)',
  wrong_codes: readAndWrite,
  login_challenges: 'select, insert, delete, update (tries)',
  logins: 'select, insert, update (count, failures)',
  identity_providers:
    'select, insert, delete, ' +
    'update (name, client_ids, is_enabled, second_factor, session_hours, creates_role_id, creates_scope, creates_entity_id, creates_entity_since, creates_domains, creates_claims, creates_permissions)',
  identities: 'select, insert, delete, update (last_used_at, held_at, logged_out_at)',
  used_id_tokens: 'select, insert, delete, update (hash)', // locks rows that it removes
  provider_states: readAndWrite,
  sign_in_rules: 'select, insert, update (password_logins, except_users, changed_at)',
  used_challenges: 'select, insert, delete, update (hash)', // locks rows that it removes
  audit_log: 'select', // written by triggers with the rights of the operator
  idempotency_keys: readAndWrite,
  sessions: readAndWrite,
  login_networks: readAndWrite,
  registrations: readAndWrite,
  mail_deliveries: readAndWrite,
  account_notices: readAndWrite,
  legacy_tokens: readAndWrite,
  processes: readAndWrite,
  webhook_tenants: 'select, insert, update',
  tenant_usage: readAndWrite,
  tenant_fences: 'select',
  fence_acknowledgements: 'select, insert',
  // A request locks the row of its client, which needs the right to update one column.
  api_clients: 'select, update (id)',
};

/**
 * The name of the login begins with that of the database, cut so that the limit of 63 bytes
 * never cuts the suffix.
 */
const maxNameLength = 50;

/** SQL for the name of the login. */
const loginName = `(left(current_database(), ${maxNameLength}) || '_service')::name`;

/** Returns the name of the login that `createServiceLogin` makes for a control database. */
export function serviceLoginOf(controlUrl: string): string {
  return `${databaseNameOf(controlUrl).slice(0, maxNameLength)}_service`;
}

/** Returns whether the URL of a control database has the login of its service. */
export function isServiceLogin(controlUrl: string): boolean {
  return parsePostgresUrl(controlUrl).user === serviceLoginOf(controlUrl);
}

/** The remedy for a command that runs with the login of the service. */
export const operatorLoginText =
  'DATABASE_URL has the login of the service: commands need the login of the operator, with which control migrate ran';

/** SQL: true for a role of `pg_roles` that has rights of an operator. */
const isOperator = '(rolsuper or rolcreaterole or rolcreatedb)';

/** Returns whether the login of these connections has rights of an operator. */
export async function isOperatorLogin({ statements }: ControlStatements): Promise<boolean> {
  const { rows } = await statements.query<{ operator: boolean }>(
    `select ${isOperator} as operator from pg_roles where rolname = current_user`,
  );
  const [login] = rows;
  return login?.operator === true;
}

/**
 * Returns the name of the login of the service, and whether it exists.
 * @throws {OperatorError} when a login of that name has rights of an operator, or PostgreSQL
 *   would refuse it with a new password, too
 */
export async function findServiceLogin(
  client: pg.Client,
): Promise<{ name: string; exists: boolean }> {
  const { rows } = await client.query<{
    name: string;
    database: string;
    exists: boolean;
    operator: boolean;
  }>(
    `select ${loginName} as name, current_database() as database, rolname is not null as exists,
            coalesce(${isOperator}, false) as operator
       from (values (1)) as one left join pg_roles on rolname = ${loginName}`,
  );

  const [found] = rows;
  if (!found) throw new Error('the login of the service has no name');
  const { name, database, exists, operator } = found;
  if (operator) {
    throw new OperatorError(
      `The login ${name} exists and has rights of an operator: drop or rename it`,
    );
  }
  // Before the password is changed: the service works as long as the former one.
  const fault = await findLoginFault(client, { role: name, database });
  if (fault?.kind === 'ended' || fault?.kind === 'limit') {
    throw await refusedLoginError(client, { role: name, database });
  }

  return { name, exists };
}

/**
 * Creates the login of the service, or gives it a new password, and logs in with it. The
 * service has to be restarted with the new URL then.
 * @param controlUrl URL of the control database with the login of the operator
 * @returns the URL of the control database with the login of the service
 * @throws {OperatorError} when a login of that name has rights of an operator, or the server
 *   refuses it
 */
export async function createServiceLogin(controlUrl: string, password: string): Promise<string> {
  return withLock(controlUrl, lockSpaces.control, 0, async client => {
    const { name: user, exists } = await findServiceLogin(client);
    const database = databaseNameOf(controlUrl);
    const login = { role: user, database, password };
    if (exists) await requireAdmitted(client, controlUrl, login);

    // A new role has no other attributes. Only a superuser may name them, even to deny them.
    const change = exists ? 'alter' : 'create';
    const verifier = quoteLiteral(scramVerifier(password, scramIterations));
    await client.query(`${change} role ${quoteIdentifier(user)} login password ${verifier}`);
    await grantServicePrivileges(client);

    await requireLogin(controlUrl, login);
    return databaseUrl(controlUrl, database, { user, password });
  });
}

/**
 * Requires that `pg_hba.conf` admits a login from this machine, before its password is changed:
 * nobody would be told the new one. With a password that it does not have yet, PostgreSQL says
 * so only after it has looked there.
 * @throws {OperatorError} when the server does not admit the login
 */
async function requireAdmitted(client: pg.Client, controlUrl: string, login: Login): Promise<void> {
  if (await findLoginFault(client, login)) return; // the change gives it LOGIN and CONNECT

  await requireLogin(controlUrl, login).catch(error => {
    if (sqlState(error.cause) === '28000') throw error;
  });
}

/**
 * Gives the login of the service its privileges and no others; does nothing when there is no
 * such login.
 */
export async function grantServicePrivileges(client: pg.Client): Promise<void> {
  const { rows } = await client.query<{ role: string; database: string }>(
    `select rolname as role, current_database() as database from pg_roles where rolname = ${loginName}`,
  );
  if (!rows[0]) return;

  const role = quoteIdentifier(rows[0].role);
  const grants = Object.entries(privileges).map(
    ([table, rights]) => `grant ${rights} on ${table} to ${role}`,
  );
  await client.query(
    [
      'begin',
      `grant connect on database ${quoteIdentifier(rows[0].database)} to ${role}`,
      `revoke all on all tables in schema public from ${role}`,
      ...grants,
      'commit',
    ].join(';\n'),
  );
}
