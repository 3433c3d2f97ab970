import type { Installation } from '../../control/installation.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { withConnection } from '../../lib/postgres/connection.ts';
import { within } from '../../lib/runtime/within.ts';
import { findRemains } from './database-names.ts';
import { closedStamp } from './database-stamp.ts';
import { readCurrent, readDatabases } from './database-store.ts';
import { readStamp } from './drop-database.ts';
import { hasFence } from './fence.ts';
import { type RunContext, type RunObservers, runDatabases } from './run-databases.ts';
import { withTenant } from './with-tenant.ts';

/**
 * Serves a tenant again from its current database, after a run has failed or was killed behind
 * the fence. Changes nothing for a tenant without a fence.
 * @throws {OperatorError} when another command works on the tenant
 */
export async function retreatTenant(installation: Installation, slug: string): Promise<void> {
  await withTenant(installation, slug, (control, tenant) =>
    retreatIfFenced({ installation, control, tenant }),
  );
}

/**
 * Does the work of `retreatTenant` for a tenant whose lock is held.
 * @param mayBeOlder true if another database is going to be the current one
 * @returns true if the tenant had a fence
 * @throws {OperatorError} as `requireNoneNewer`
 */
export async function retreatIfFenced(
  context: RunContext,
  observers: RunObservers = {},
  { mayBeOlder = false }: { readonly mayBeOlder?: boolean } = {},
): Promise<boolean> {
  if (!(await hasFence(context.control, context.tenant.guid))) return false;

  if (!mayBeOlder) await requireNoneNewer(context);
  await runDatabases(context, 'retreat', {}, observers);
  return true;
}

/**
 * Lets the database that a tenant has serve it, also without a fence: a control database of an
 * earlier time does not know the fence behind which that database was closed. Changes nothing
 * for a tenant that is being provisioned or purged.
 * @returns false if it was served already
 * @throws {OperatorError} when that database is closed and another one lets the tenant in,
 *   which may have newer data
 */
export async function retreatAlways(
  context: RunContext,
  observers: RunObservers = {},
): Promise<boolean> {
  if (await retreatIfFenced(context, observers)) return true;
  const { rowCount } = await context.control.query(
    `select from tenants where id = $1 and status <> 'provisioning' and purging_at is null`,
    [context.tenant.id],
  );
  if (!rowCount) return false;
  if (await isServed(context)) return false;
  await requireNoneNewer(context);
  await runDatabases(context, 'retreat', {}, observers);
  return true;
}

/**
 * Returns false if a tenant has a fence, or its database is closed. A lost database cannot be
 * opened.
 */
export async function isServed({ installation, control, tenant }: RunContext): Promise<boolean> {
  if (await hasFence(control, tenant.guid)) return false;
  const current = await readCurrent(control, tenant.id);
  const stamp = current && (await readStamp(installation, current));
  if (!current || !stamp) return true;
  if (stamp === closedStamp(tenant.guid)) return false;
  return withConnection(installation.servers.adminUrl(current.server), async admin => {
    return (await findRemains(admin, current)).role?.mayLogIn !== false;
  });
}

/** How long another database may take to say that it is open, in ms. */
const maxLookMs = 2_000;

/**
 * Checks that no other database lets a tenant in, whose own one is closed. A run records a
 * database as the current one before it opens it: so the control database has lost that record,
 * as a standby that was promoted, or an archive. The other database stays, for a swap that puts
 * it in place. One on a server that does not respond is passed over: it cannot be told whether
 * that is open, and a tenant is served again also while another server is away.
 * @throws {OperatorError} when there is one
 */
export async function requireNoneNewer({
  installation,
  control,
  tenant,
}: RunContext): Promise<void> {
  const current = await readCurrent(control, tenant.id);
  const own = current && (await readStamp(installation, current).catch(() => null));
  if (own !== closedStamp(tenant.guid)) return;

  const others = await readDatabases(control, tenant.id, [
    'reserved',
    'filled',
    'kept',
    'condemned',
  ]);
  const stamps = await Promise.all(
    others.map(each => within(readStamp(installation, each), maxLookMs).catch(() => null)),
  );
  const newer = others.find((_, index) => stamps[index] === tenant.guid);
  if (!newer) return;

  const { id, database, keptBy } = newer;
  await control.query(
    `update tenant_databases set state = 'kept', kept_by = 'back', keep_until = null
      where id = $1 and (state in ('reserved', 'condemned') or kept_by = 'move')`,
    [id],
  );
  const kind = keptBy === 'swap' ? 'back' : 'swap';
  throw new OperatorError(
    `${database} of ${tenant.slug} may have newer data than its current one, which is closed: the control database ` +
      `is of an earlier time. Put it in place: bin/backoffice restore ${kind} ${tenant.slug} --database ${database}`,
  );
}
