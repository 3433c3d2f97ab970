import type { ControlStatements, Installation } from '../../installation.ts';
import { OperatorError } from '../../log/operator-error.ts';
import { withConnection } from '../../postgres/connection.ts';
import { findTenant } from '../tenants/tenants.ts';
import { readCurrent, readDatabases } from './database-store.ts';
import { dropCondemned, notDropped, requireClosed } from './drop-database.ts';
import { isLeftover, readStored, type StoredDatabase } from './list-databases.ts';
import { isServed, retreatAlways, retreatIfFenced } from './retreat-tenant.ts';
import type { RunContext, RunObservers } from './run-databases.ts';
import { TenantBusyError, withTenant } from './with-tenant.ts';

/** A database that is dropped, or serves its tenant again. */
export interface PrunedDatabase extends Pick<StoredDatabase, 'slug' | 'server' | 'database' | 'state'> {
  action: 'drop' | 'serve';
}

/** Chooses databases of a tenant that are filled or kept. */
export type Choice = (database: StoredDatabase) => boolean;

/** Returns what `pruneDatabases` drops, and changes nothing. */
export async function findPrunable(
  control: ControlStatements,
  slug?: string,
  isChosen: Choice = isLeftover,
): Promise<PrunedDatabase[]> {
  const isPruned = (each: StoredDatabase): boolean =>
    !each.isNew && !each.isPurging && each.state !== 'current' && (isComplete(each) ? isChosen(each) : true);
  const pruned = (await readStored(control, slug)).filter(isPruned);
  return pruned.map(({ slug, server, database, state }) => ({ slug, server, database, state, action: 'drop' }));
}

function isComplete({ state }: StoredDatabase): boolean {
  return state === 'filled' || state === 'kept';
}

/** Returns what `pruneDatabases` drops and which databases serve their tenants again, and changes nothing. */
export async function planPrune(installation: Installation, slug: string | undefined): Promise<PrunedDatabase[]> {
  const served = await withConnection(installation.controlUrl, async control => {
    const found: PrunedDatabase[] = [];
    for (const each of slug === undefined ? await fencedSlugs(installation) : [slug]) {
      const { id, guid } = await findTenant(installation, each);
      const context = { installation, control, tenant: { id, guid, slug: each } };
      if (!(await isServed(context))) found.push(...(await servedRow(context)));
    }
    return found;
  });
  return [...served, ...(await findPrunable(installation, slug))];
}

async function servedRow({ control, tenant: { id, slug } }: RunContext): Promise<PrunedDatabase[]> {
  const current = await readCurrent(control, id);
  if (!current) return [];
  const { server, database, state } = current;
  return [{ slug, server: server.name, database, state, action: 'serve' }];
}

/**
 * Drops databases that tenants do not need any more: what killed runs have left, what is condemned, and those whose
 * time has passed. Puts tenants back into service whose run has ended behind the fence, and a tenant that is named also
 * without a fence (`retreatAlways`). A tenant that another command works on is left out, unless it is named.
 * @param isChosen to drop these in place of those whose time has passed, and to open none without a fence
 * @returns what was dropped, and what serves its tenant again
 * @throws {OperatorError} when the named tenant is worked on; when a database is not closed, or a server cannot be
 *   used, after the others
 */
export async function pruneDatabases(
  installation: Installation,
  slug: string | undefined,
  observers: RunObservers = {},
  isChosen?: Choice,
): Promise<PrunedDatabase[]> {
  const pruned: PrunedDatabase[] = [];
  const failures: unknown[] = [];
  const retreat = slug !== undefined && isChosen === undefined ? retreatAlways : retreatIfFenced;
  for (const each of slug === undefined ? await slugsToPrune(installation) : [slug])
    await pruneTenant(installation, each, isChosen, context => retreat(context, observers)).then(
      dropped => pruned.push(...dropped),
      error => {
        if (slug !== undefined || !(error instanceof TenantBusyError)) failures.push(error);
      },
    );
  if (slug !== undefined && failures.length > 0) throw failures[0];
  if (failures.length > 0)
    throw new OperatorError(
      `The databases of ${failures.length} tenants could not be dropped: see npx backoffice databases`,
      { cause: failures[0] },
    );
  return pruned;
}

async function fencedSlugs({ statements }: Installation): Promise<string[]> {
  const query = 'select slug from tenants join tenant_fences on tenant_guid = guid order by slug';
  return (await statements.execute<{ slug: string }[]>(query, [])).map(({ slug }) => slug);
}

async function slugsToPrune(installation: Installation): Promise<string[]> {
  const prunable = (await findPrunable(installation)).map(({ slug }) => slug);
  return [...new Set([...prunable, ...(await fencedSlugs(installation))])].sort();
}

async function pruneTenant(
  installation: Installation,
  slug: string,
  isChosen: Choice | undefined,
  retreat: typeof retreatAlways,
): Promise<PrunedDatabase[]> {
  return withTenant(installation, slug, async (control, tenant) => {
    const context = { installation, control, tenant };
    const served = (await retreat(context)) ? await servedRow(context) : [];
    const found = await findPrunable(installation, slug, isChosen);
    const { closed, refusals } = await findClosed(context, found);
    await control.query(
      `update tenant_databases set state = 'condemned'
        where database_name = any ($1) and state in ('reserved', 'filled', 'kept')`,
      [closed.map(({ database }) => database)],
    );
    await dropCondemned(installation, control, tenant);
    if (refusals.length > 0) throw refusals[0];
    return [...served, ...closed];
  });
}

/**
 * Finds those that may be condemned. A complete database that lets the tenant in may have newer data, when the control
 * database is of an earlier time: it stays complete, so that a swap can put it in place.
 */
async function findClosed(
  { installation, control, tenant }: RunContext,
  found: readonly PrunedDatabase[],
): Promise<{ closed: PrunedDatabase[]; refusals: unknown[] }> {
  const complete = await readDatabases(control, tenant.id, ['filled', 'kept']);
  const refusals = new Map<string, unknown>();
  for (const each of complete.filter(({ database }) => found.some(one => one.database === database)))
    await requireClosed(installation, each, tenant.guid).catch(error =>
      refusals.set(each.database, notDropped(tenant.slug, each, error)),
    );
  return { closed: found.filter(({ database }) => !refusals.has(database)), refusals: [...refusals.values()] };
}
