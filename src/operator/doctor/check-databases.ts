import { quoteIdentifier as quote, quoteLiteral } from '../../lib/postgres/quote.ts';
import { isScratchName } from '../backup/check/scratch-names.ts';
import { closedStamp } from '../databases/store/database-stamp.ts';
import { isLeftover, type StoredDatabase } from '../databases/verbs/list-databases.ts';
import { templateOfOtherBuild } from '../schema/template.ts';
import { asOwner, type CheckContext } from './check-context.ts';
import type { CheckedTenant } from './control-facts.ts';

/** Checks that the database of a tenant exists and accepts connections. */
export function checkTenantDatabase(
  { slug, guid, databaseName, status, isPurging }: CheckedTenant,
  { facts, orphanIdentities, report }: CheckContext,
): void {
  const database = facts.databases.get(databaseName);
  const restore = isPurging
    ? `End the purge: bin/backoffice purge ${slug}`
    : status === 'deleted'
      ? `Restore it: bin/backoffice restore ${slug} --lost. Or purge the tenant: bin/backoffice purge ${slug}`
      : `Restore it from its newest archive: bin/backoffice restore ${slug} --lost`;

  const renamed = [...orphanIdentities]
    .filter(([, identity]) => identity === guid)
    .map(([name]) => name);

  if (!database && renamed[0] !== undefined) {
    report({
      check: 'renamed_database',
      problem: `database ${databaseName} is missing; the data of ${slug} is in database ${renamed.join(' and in ')}`,
      remedy: `Rename ${renamed[0]} to ${databaseName}`,
      statements: [`alter database ${quote(renamed[0])} rename to ${quote(databaseName)}`],
      kind: 'named',
      changes: renamed[0],
    });
  } else if (!database) {
    report({
      check: 'missing_database',
      problem: `database ${databaseName} is missing`,
      remedy: restore,
    });
  } else if (database.broken) {
    report({
      check: 'half_dropped_database',
      problem: `database ${databaseName} is half dropped and cannot be used`,
      remedy: restore,
    });
  } else if (!database.open) {
    report({
      check: 'closed_database',
      problem: `database ${databaseName} accepts no connections`,
      remedy: 'If it was not closed on purpose, open it',
      statements: [`alter database ${quote(databaseName)} allow_connections true`],
      kind: 'named',
      changes: databaseName,
    });
  }
}

/** Checks that every filled or kept database exists. */
export function checkUnusedDatabases({ server, control, facts, report }: CheckContext): void {
  for (const { database, serverId, tenantId, state } of control.databases) {
    if (serverId !== server.id || (state !== 'filled' && state !== 'kept')) continue;
    if (facts.databases.get(database)?.broken === false) continue;
    const slug = control.tenants.find(({ id }) => id === tenantId)?.slug;
    report({
      check: 'missing_database',
      tenant: slug,
      problem: `database ${database}, ${state}, is missing`,
      remedy: `Forget it: bin/backoffice databases drop ${slug} ${database}`,
    });
  }
}

/**
 * Checks that the databases of tenants which serve nobody are closed to their tenants, and
 * accept the connections of commands. At most one database of a tenant lets the tenant in
 * (I3 of `database-protocol.ts`): a process that has not heard of a switch could otherwise
 * write into the former one.
 */
export function checkIdleDatabases(context: CheckContext): void {
  const { server, control } = context;

  for (const stored of control.stored) {
    const { isBusy, isNew, isPurging, fence } = stored;
    const isSettled = !isBusy && !isNew && !isPurging && fence === null;
    if (stored.server !== server.name || !isSettled || stored.state === 'current') continue;

    checkAccepting(stored, context);
    checkClosed(stored, context);
  }
}

/** A leftover is dropped, whether it accepts connections or not. */
function checkAccepting(stored: StoredDatabase, { facts, report }: CheckContext): void {
  const { slug, database, state } = stored;
  const found = facts.databases.get(database);
  if (isLeftover(stored) || found === undefined || found.open || found.broken) return;

  report({
    check: 'closed_database',
    tenant: slug,
    problem: `database ${database} of ${slug}, ${state}, accepts no connections, so no command can use it`,
    remedy: 'If it was not closed on purpose, open it',
    statements: [`alter database ${quote(database)} allow_connections true`],
    kind: 'named',
    changes: database,
  });
}

function checkClosed({ slug, database, state }: StoredDatabase, context: CheckContext): void {
  const { control, facts, report } = context;
  const role = control.databases.find(each => each.database === database)?.role;
  const tenant = control.tenants.find(each => each.slug === slug);
  if (role === undefined || tenant === undefined || !facts.roles.get(role)?.login) return;
  // `checkTenantRole` reports a current database that lets nobody in: this one may be newer.
  if (facts.roles.get(tenant.roleName)?.login === false) return;

  const { guid } = tenant;
  report({
    check: 'open_database',
    tenant: slug,
    problem: `database ${database} of ${slug}, ${state}, lets the tenant in, beside the database that serves it`,
    remedy:
      'If the control database is of an earlier time, it may have newer data: see docs/operate/restore.md. ' +
      'Otherwise close it',
    statements: [
      `alter role ${quote(role)} nologin`,
      `update tenant_identity set guid = ${quoteLiteral(closedStamp(guid))} where guid = ${quoteLiteral(guid)}`,
    ],
    kind: 'named',
    database,
    changes: database,
    alters: role,
  });
}

/** Reports the databases of drills that ended before they could drop them. */
export function checkDrillDatabases({ server, control, facts, report }: CheckContext): void {
  if (control.isDrilling) return;

  for (const { name } of facts.databases.values()) {
    if (!isScratchName(server, name)) continue;
    report({
      check: 'leftover_database',
      problem: `database ${name} is of a drill that has ended early`,
      remedy: 'Drop it, as the next drill does',
      statements: [`drop database if exists ${quote(name)}`],
    });
  }
}

/** Digests of migrations, which the names of templates contain. */
export interface TemplateBuilds {
  /** The digest of this build. */
  readonly own: string;
  /**
   * The digests of builds that this build does not know: it cannot judge whether their
   * templates are needed.
   */
  readonly newer: ReadonlySet<string>;
}

/** Reports the template of this build if it accepts connections: it cannot be copied then. */
export function checkOwnTemplate(
  { server, facts, report }: CheckContext,
  { own }: TemplateBuilds,
): void {
  const name = `${server.prefix}_template_${own}`;
  if (!facts.databases.get(name)?.open) return;

  report({
    check: 'open_template',
    problem: `${name} has the name of the template of this build, and accepts connections: no tenant can be provisioned, cloned or restored`,
    remedy: 'If it was opened for pg_upgrade, close it',
    statements: [`alter database ${quote(name)} allow_connections false`],
    kind: 'named',
    changes: name,
  });
}

/** Reports the templates of the builds before this one. */
export function checkOldTemplates(
  { server, facts, report }: CheckContext,
  { own, newer }: TemplateBuilds,
): void {
  for (const { name, open } of facts.databases.values()) {
    const template = templateOfOtherBuild(server, name, own);
    if (!template || [...newer].some(digest => name.includes(digest))) continue;
    const drop = `drop database if exists ${quote(name)}`;
    const who = asOwner(facts, name);
    if (open && name === template) {
      report({
        check: 'old_template',
        problem: `${name} has the name of a template of another build, and accepts connections, which no template does`,
        remedy: `Find out what it is. If nobody needs it, drop it${who}: ${drop};`,
      });
      continue;
    }
    report({
      check: 'old_template',
      problem: `${name} is the template of another build`,
      remedy: `Drop it when no process of that build is left${who && `,${who}: ${drop};`}`,
      statements: who ? undefined : [drop],
    });
  }
}
