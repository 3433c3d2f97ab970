import pLimit from 'p-limit';
import type pg from 'pg';
import type { Installation } from '../../control/installation.ts';
import { databaseUrl } from '../../control/server-urls.ts';
import { parsePostgresUrl } from '../../lib/config/postgres-url.ts';
import { connectFailure } from '../../lib/log/postgres-causes.ts';
import { catalogQuerySettings, withConnection } from '../../lib/postgres/connection.ts';
import { sqlState } from '../../lib/postgres/database-error.ts';
import { quoteIdentifier as quote, quoteLiteral } from '../../lib/postgres/quote.ts';
import { holderName, readFeedHolder } from '../../sales/events/held-feeds.ts';
import { fleetTasks } from '../command/fleet-tasks.ts';
import { errorText } from '../command/texts.ts';
import { findWithoutEntity, type LimitedUser } from '../databases/copy/users-without-entity.ts';
import { tenantVerifier } from '../databases/protocol/create-database.ts';
import { closedStamp } from '../databases/store/database-stamp.ts';
import { findLoginFault, isRefusedLogin, type LoginFault } from '../schema/login-fault.ts';
import { readSchemaState } from '../schema/schema-steps.ts';
import { tenantGroup } from '../schema/template.ts';
import { readTextOrder, textOrderFault } from '../schema/text-order.ts';
import { type ReadOnlyLock, readOnlyLockSql, readOnlyText } from '../servers/read-only-lock.ts';
import { checkCluster } from './check-cluster.ts';
import {
  checkAppendOnlyTables,
  checkIdentityVersion,
  checkSchema,
  checkVersion,
  type Head,
} from './check-schema.ts';
import { openPassword } from './check-tenant-role.ts';
import type { CheckedTenant } from './control-facts.ts';
import { type Finding, type Report, toFinding } from './finding.ts';
import { psqlCommand } from './psql-command.ts';

/** Tenant databases that are checked at the same time, and so connections to each server. */
const maxTenants = 4;

/** The state that the databases of tenants are compared with. */
interface Expected {
  head: Head;
  /** The guids of all tenants, and of purged tenants. */
  guids: ReadonlySet<string>;
  /** The active users of scope `Self` that belong to an entity, by the id of the tenant. */
  limitedUsers: ReadonlyMap<number, readonly LimitedUser[]>;
}

/**
 * Checks the databases of tenants inside.
 * @param onTenant called when the database of a tenant was checked
 */
export async function checkTenants(
  installation: Installation,
  tenants: readonly CheckedTenant[],
  expected: Expected,
  onTenant: ((hasFindings: boolean) => void) | undefined,
): Promise<Finding[]> {
  const findings = await pLimit(fleetTasks(installation, maxTenants)).map(tenants, async tenant => {
    const found = await checkTenant(installation, tenant, expected).catch((error: unknown) => [
      notExamined(tenant, error),
    ]);
    onTenant?.(found.length > 0);
    return found;
  });
  return findings.flat();
}

function notExamined(tenant: CheckedTenant, error: unknown): Finding {
  const { slug, databaseName, roleName, server } = tenant;
  const problem = `database ${databaseName} was not checked: ${connectFailure(error) ?? errorText(error)}`;

  if (sqlState(error) === 'TRIGGERS_OFF') {
    const [database, role] = [quote(databaseName), quote(roleName)];
    const places = [`database ${database}`, `role ${role}`, `role ${role} in database ${database}`];
    return toFinding(server.name, {
      check: 'not_examined',
      tenant: slug,
      problem,
      remedy: 'Reset that for the database and its login; if the server has it, reset it there',
      statements: places.map(place => `alter ${place} reset session_replication_role`),
    });
  }

  return toFinding(server.name, {
    check: 'not_examined',
    tenant: slug,
    problem,
    remedy: 'If a session in it holds a transaction open, end the session',
    statements: [
      `select pg_terminate_backend(pid) from pg_stat_activity
        where datname = ${quoteLiteral(databaseName)} and pid <> pg_backend_pid() and state like 'idle in transaction%'`,
    ],
    kind: 'named',
  });
}

/**
 * Checks the contents of one tenant database. Connects as the service does, with the login of
 * the tenant, to find what prevents the service from connecting. If that login is refused,
 * connects with the login of the operator.
 */
async function checkTenant(
  installation: Installation,
  tenant: CheckedTenant,
  expected: Expected,
): Promise<Finding[]> {
  const { databaseName, roleName } = tenant;
  const adminUrl = installation.servers.adminUrl(tenant.server);

  const check = (login?: { user: string; password: string }): Promise<Finding[]> =>
    withConnection(
      databaseUrl(adminUrl, databaseName, login),
      client => checkInside(client, tenant, expected, parsePostgresUrl(adminUrl).user ?? ''),
      {
        kind: 'doctor',
        settings: catalogQuerySettings,
      },
    );

  const password = openPassword(tenant, installation.secrets);
  // checkControl reports that the password cannot be decrypted
  if (password === undefined) return check();

  try {
    return await check({ user: roleName, password });
  } catch (error) {
    if (!isRefusedLogin(error)) throw error;

    const fault = await withConnection(
      adminUrl,
      client => findLoginFault(client, { role: roleName, database: databaseName }),
      { kind: 'doctor', settings: catalogQuerySettings },
    );
    if (!fault && !isOfLogin(error)) throw error;

    const refused = {
      check: 'login_fails',
      tenant: tenant.slug,
      problem: `the service cannot log in to database ${databaseName}: ${fault?.problem ?? errorText(error)}`,
      ...loginRemedy(tenant, { password, fault, error }),
    } as const;

    return [toFinding(tenant.server.name, refused), ...(await check())];
  }
}

/** Returns the remedy of a login of a tenant that its server refuses. */
function loginRemedy(
  { roleName }: CheckedTenant,
  { password, fault, error }: { password: string; fault: LoginFault | undefined; error: unknown },
): Pick<Report, 'remedy' | 'statements'> {
  // The other faults have findings of their own (`checkTenantRole`).
  if (fault?.kind === 'ended' || fault?.kind === 'limit') {
    return { remedy: 'Let the server admit it', statements: [...fault.statements] };
  }
  if (fault || sqlState(error) === insufficientPrivilege) {
    return { remedy: 'Resolve the other findings of the tenant.' };
  }
  if (sqlState(error) === '28P01') {
    return {
      remedy: `Give role ${roleName} the password that the control database has`,
      statements: [setPassword(roleName, password)],
    };
  }
  return {
    remedy: `Let pg_hba.conf of the server admit role ${roleName} from this machine with scram-sha-256.`,
  };
}

const insufficientPrivilege = '42501';

/** True for an error that is about the login, whatever the catalog says of it. */
function isOfLogin(error: unknown): boolean {
  return /^(28|42501)/.test(sqlState(error) ?? '');
}

function setPassword(roleName: string, password: string): string {
  return `alter role ${quote(roleName)} password ${quoteLiteral(tenantVerifier(password))}`;
}

/**
 * @param client on the tenant's database
 * @param operator the login of the command
 */
async function checkInside(
  client: pg.Client,
  tenant: CheckedTenant,
  { head, guids, limitedUsers }: Expected,
  operator: string,
): Promise<Finding[]> {
  const findings: Finding[] = [];
  const report = (finding: Omit<Report, 'tenant'>): void => {
    findings.push(
      toFinding(tenant.server.name, {
        database: tenant.databaseName,
        ...finding,
        tenant: tenant.slug,
      }),
    );
  };

  const { guid, applied } = await readSchemaState(client);
  if (guid === closedStamp(tenant.guid)) {
    report({
      check: 'unfinished_switch',
      problem:
        'the database is closed, as by a move or a swap after the time of the control database',
      remedy: `Let it serve the tenant: bin/backoffice databases prune ${tenant.slug}`,
    });
    return findings;
  }

  if (guid !== tenant.guid) {
    const isOther = applied.length === 0 || (guid !== null && guids.has(guid));
    report(isOther ? otherDatabase(tenant, guid) : lostIdentity(tenant, guid));
    return findings;
  }

  await checkTextOrder(client, tenant, report);
  await checkLock(client, tenant, report);
  const version = applied.at(-1) ?? null;
  if (version === head.version) await checkFeed(client, operator, report);
  await checkAppendOnlyTables(client, tenant.roleName, report);

  const schema = { slug: tenant.slug, group: tenantGroup(tenant.server), version: version ?? '' };
  const differences = version === null ? 0 : await checkSchema(client, head, schema, report);
  checkVersion(tenant, version, head, differences, report);
  if (version !== head.version) return findings;

  await checkIdentityVersion(client, head, report);
  await checkCluster(client, tenant.roleName, report);
  await checkUsers(client, tenant, limitedUsers.get(tenant.id) ?? [], report);
  await checkLargeObjects(client, report);
  return findings;
}

/**
 * Reports a database that is empty, or has the data of another tenant. It does not get the guid
 * of this tenant: it is renamed, and the next check finds the database of this tenant under
 * another name, or reports it as missing.
 */
function otherDatabase({ slug, databaseName }: CheckedTenant, found: string | null): Report {
  return {
    check: 'wrong_identity',
    problem: wrongIdentity(found),
    remedy: `Put it aside as ${asideName(databaseName)}, and check again what ${slug} has`,
    statements: [
      `alter database ${quote(databaseName)} rename to ${quote(asideName(databaseName))}`,
    ],
    kind: 'named',
    database: undefined,
    changes: databaseName,
  };
}

/** Reports a database whose guid is of nobody: it may have been changed by hand. */
function lostIdentity({ slug, guid }: CheckedTenant, found: string | null): Report {
  return {
    check: 'wrong_identity',
    problem: wrongIdentity(found),
    remedy: `If it has the data of ${slug}, give it the guid of ${slug} again`,
    statements: [
      found === null
        ? // Its changes begin a new era, because the last era is not known.
          `insert into tenant_identity (guid, feed_era, feed_since)
           select ${quoteLiteral(guid)}, era, era from (select next_feed_era()) as next (era)`
        : `update tenant_identity set guid = ${quoteLiteral(guid)}`,
    ],
    kind: 'named',
  };
}

function wrongIdentity(found: string | null): string {
  return found
    ? `the database belongs to the tenant with guid ${found}`
    : 'the database has no identity';
}

const asideName = (database: string): string => `${database}_aside`;

/**
 * Reports a database that somebody else has made, in which lists have another order and other
 * codes are equal: after its move, pages would leave records out, and codes could be refused.
 * The order of a database cannot be changed.
 */
async function checkTextOrder(
  client: pg.Client,
  { slug, databaseName }: CheckedTenant,
  report: (report: Report) => void,
): Promise<void> {
  const fault = textOrderFault(await readTextOrder(client));
  if (fault === undefined) return;

  report({
    check: 'text_order_differs',
    problem: `database ${databaseName} ${fault}`,
    remedy:
      `Make a database with the order of all others: bin/backoffice restore ${slug} --archive latest. ` +
      `Then compare it, and swap it: bin/backoffice restore swap ${slug}`,
  });
}

/** Maximum users that a finding names. */
const maxNamed = 10;

/**
 * Reports users who read nothing, because the database does not have their entity: its data is
 * of an earlier time than the user, or somebody has deleted the entity by hand.
 */
async function checkUsers(
  client: pg.Client,
  { slug }: CheckedTenant,
  users: readonly LimitedUser[],
  report: (report: Report) => void,
): Promise<void> {
  const emails = await findWithoutEntity(client, users);
  if (emails.length === 0) return;

  const others = emails.length > maxNamed ? ', and others' : '';
  report({
    check: 'users_without_entity',
    problem:
      'the database does not have the entity of these users of scope Self, who read nothing of ' +
      `one: ${emails.slice(0, maxNamed).join(', ')}${others}`,
    remedy:
      'Let an administrator of the tenant give each of them an entity (PUT /api/v1/Users/<id>), ' +
      `or disable the user: bin/backoffice user disable ${slug} ${emails[0]}`,
  });
}

/** Reports a lock of a database, a login or a server: its owner has set it, and ends it. */
async function checkLock(
  client: pg.Client,
  { databaseName: database }: CheckedTenant,
  report: (report: Report) => void,
): Promise<void> {
  const { rows } = await client.query<{ lock: ReadOnlyLock | null; login: string }>(
    `select ${readOnlyLockSql} as lock, current_user as login`,
  );
  const [{ lock, login } = { lock: null, login: '' }] = rows;
  if (lock === null) return;

  const { place, remedy } = readOnlyText(lock, { login, database });
  report({
    check: 'read_only',
    problem: `changes get 503, because default_transaction_read_only is on for ${place}`,
    remedy,
  });
}

/**
 * Reports a transaction that has held back changes of the tenant for 30 s: its feed and its
 * webhooks stand still until the transaction ends.
 * @param operator the login of the command
 */
async function checkFeed(
  client: pg.Client,
  operator: string,
  report: (report: Report) => void,
): Promise<void> {
  const holder = await readFeedHolder(
    async ({ text, values }) => (await client.query(text, values)).rows,
  );
  if (!holder) return;

  const { pid, application, login, since, database } = holder;
  const statement =
    pid === null
      ? `rollback prepared ${quoteLiteral(application)}`
      : `select pg_terminate_backend(${pid})`;
  const { rows } = await client.query<{ mayEnd: boolean }>(mayEnd, [operator, login, pid === null]);

  report({
    check: 'feed_held',
    problem: `changes wait for a transaction that is open since ${since}, of ${holderName(holder)}: the feed and the webhooks stand still`,
    ...(rows[0]?.mayEnd
      ? {
          remedy: 'Let its owner end it. Or end it yourself, which undoes what it has changed',
          statements: [statement],
          database,
          kind: 'named',
        }
      : {
          remedy: `Let its owner end it. Or end it, which undoes what it has changed, as a superuser of the server: ${psqlCommand(statement, database)}`,
        }),
  });
}

/**
 * SQL: true if the login of the command, $1, may end a transaction of the login $2, which is
 * prepared if $3: only its owner or a superuser may roll back a prepared one.
 */
const mayEnd = `
  select rolsuper or rolname = $2::text
         or not $3::boolean and (pg_has_role(rolname, 'pg_signal_backend', 'usage') or pg_has_role(rolname, o.oid, 'usage'))
            and not coalesce(o.is_superuser, false) as "mayEnd"
    from pg_roles
    left join (select oid, rolname as owner, rolsuper as is_superuser from pg_roles) o on o.owner = $2::text
   where rolname = $1::text`;

/**
 * The functions of PostgreSQL that create or change large objects and that PUBLIC may execute
 * by default.
 */
const writers = [
  'lo_creat(integer)',
  'lo_create(oid)',
  'lo_from_bytea(oid, bytea)',
  'lo_put(oid, bigint, bytea)',
  'lo_open(oid, integer)',
  'lowrite(integer, bytea)',
  'lo_truncate(integer, integer)',
  'lo_truncate64(integer, bigint)',
  'lo_unlink(oid)',
].map(name => `pg_catalog.${name}`);

const granted = `
  select string_agg(writer, ', ') as functions from unnest($1::text[]) as writer join pg_proc p on p.oid = writer::regprocedure
   where exists (select from aclexplode(coalesce(proacl, acldefault('f', proowner))) where grantee = 0)
     and (select rolsuper from pg_database join pg_roles r on r.oid = datdba where datname = current_database())`;

/**
 * Checks that a login of the database, such as that of the tenant, cannot store large objects,
 * which neither a limit nor an archive of the tenant covers. Only a superuser can revoke that,
 * so a database whose owner is none has no finding.
 * @param client on the tenant's database
 */
async function checkLargeObjects(
  client: pg.Client,
  report: (report: Report) => void,
): Promise<void> {
  const { rows } = await client.query<{ functions: string | null }>(granted, [writers]);
  const functions = rows[0]?.functions;
  if (functions) {
    report({
      check: 'excess_rights',
      problem: `PUBLIC may store large objects: it may execute ${functions.replaceAll('pg_catalog.', '')}`,
      remedy: 'Revoke EXECUTE on these functions from PUBLIC',
      statements: [`revoke execute on function ${functions} from public`],
      needsSuperuser: true,
    });
  }
}
