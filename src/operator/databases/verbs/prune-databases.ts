import type { ControlStatements, Installation } from '../../../control/installation.ts';
import { OperatorError } from '../../../lib/log/operator-error.ts';
import { connectFailure } from '../../../lib/log/postgres-causes.ts';
import { withConnection } from '../../../lib/postgres/connection.ts';
import { countText, errorText } from '../../command/texts.ts';
import { findTenant } from '../../registry/tenants.ts';
import {
  namesUnlessAway,
  notDroppedFor,
  readHoldings,
  readSessionNames,
} from '../copy/foreign-objects.ts';
import { dropCondemned, notDropped, requireClosed } from '../protocol/drop-database.ts';
import { newerError } from '../protocol/newer-database.ts';
import { planRetreat, retreatAlways, retreatIfFenced } from '../protocol/retreat-tenant.ts';
import type { RunContext, RunObservers } from '../protocol/run-databases.ts';
import { TenantBusyError, withTenant } from '../protocol/with-tenant.ts';
import { readCurrent, readDatabases } from '../store/database-store.ts';
import { isLeftover, readStored, type StoredDatabase } from './list-databases.ts';

/** A database that is dropped, or serves its tenant again. */
export interface PrunedDatabase
  extends Pick<StoredDatabase, 'slug' | 'server' | 'database' | 'state'> {
  /**
   * `refuse`: it has rows that are nowhere else, and is not dropped without `leaveSchemas`; or
   * `reason` says why it does not serve.
   */
  action: 'drop' | 'serve' | 'refuse';
  /** Why a plan says that its tenant is not put back into service. */
  reason?: string;
  /**
   * Objects that somebody else has made in a database that is dropped, and the sessions of
   * others that end.
   */
  holds: readonly string[];
  /** The tables of the database with rows that are nowhere else. */
  onlyHere: readonly string[];
}

/** The choice of the databases that are dropped. */
export interface PruneRequest {
  /** Chooses databases that are filled or kept; without it, those whose time has passed. */
  readonly isChosen?: Choice;
  /** True to drop also databases with rows that are nowhere else. */
  readonly leaveSchemas?: boolean;
}

/** Chooses databases of a tenant that are filled or kept. */
export type Choice = (database: StoredDatabase) => boolean;

/** Returns the databases that `pruneDatabases` may drop, and opens none of them. */
async function findPrunable(
  control: ControlStatements,
  slug?: string,
  isChosen: Choice = isLeftover,
): Promise<PrunedDatabase[]> {
  const isPruned = (each: StoredDatabase): boolean =>
    !each.isNew &&
    !each.isPurging &&
    each.state !== 'current' &&
    (isComplete(each) ? isChosen(each) : true);

  const pruned = (await readStored(control, slug)).filter(isPruned);
  return pruned.map(({ slug, server, database, state }) => ({
    slug,
    server,
    database,
    state,
    action: 'drop',
    holds: [],
    onlyHere: [],
  }));
}

function isComplete({ state }: Pick<StoredDatabase, 'state'>): boolean {
  return state === 'filled' || state === 'kept';
}

/**
 * Returns the databases that `pruneDatabases` drops and those that serve their tenants again,
 * and changes nothing.
 * @throws {OperatorError} when the named tenant may have a newer database than its current one
 */
export async function planPruneDatabases(
  installation: Installation,
  slug: string | undefined,
  leaveSchemas: boolean,
): Promise<PrunedDatabase[]> {
  const served = await withConnection(installation.controlUrl, async control => {
    const found: PrunedDatabase[] = [];
    for (const each of slug === undefined ? await fencedSlugs(installation) : [slug]) {
      const { id, guid } = await findTenant(installation, each);
      const context = { installation, control, tenant: { id, guid, slug: each } };
      const retreat = await planRetreat(context);
      if (retreat === true) found.push(...(await servedRow(context)));
      if (typeof retreat === 'boolean') continue;

      const error = newerError(each, retreat);
      if (slug !== undefined) throw error;
      const rows = await servedRow(context);
      found.push(
        ...rows.map(row => ({ ...row, action: 'refuse', reason: error.message }) as const),
      );
    }
    return found;
  });
  return [...served, ...(await planDrops(installation, slug, { leaveSchemas }))];
}

/**
 * Returns the databases that `pruneDatabases` drops and those that it refuses, with their
 * contents, and changes nothing.
 */
export async function planDrops(
  installation: Installation,
  slug: string | undefined,
  { isChosen, leaveSchemas = false }: PruneRequest,
): Promise<PrunedDatabase[]> {
  const found = await findPrunable(installation, slug, isChosen);
  return withConnection(installation.controlUrl, async control => {
    const planned: PrunedDatabase[] = [];
    for (const each of found) {
      const { id } = await findTenant(installation, each.slug);
      const database = (await readDatabases(control, id, droppable)).find(
        one => one.database === each.database,
      );
      if (!database) continue;
      const current = await readCurrent(control, id);
      let onlyHere: readonly string[] = [];
      const holds = await namesUnlessAway(async () => {
        const holdings = await readHoldings(installation, database, current);
        onlyHere = holdings.rows;
        return [...holdings.all, ...(await readSessionNames(installation, database))];
      });
      const action = onlyHere.length > 0 && !leaveSchemas ? 'refuse' : 'drop';
      planned.push({ ...each, action, holds, onlyHere });
    }

    return planned;
  });
}

const droppable = ['reserved', 'filled', 'kept', 'condemned'] as const;

/** @throws {OperatorError} when a planned drop is refused */
export function requireNoRefusal(planned: readonly PrunedDatabase[]): void {
  const refused = planned.find(({ action }) => action === 'refuse');
  if (refused) {
    throw notDroppedFor(
      { server: { name: refused.server }, database: refused.database },
      refused.onlyHere,
    );
  }
}

async function servedRow({ control, tenant: { id, slug } }: RunContext): Promise<PrunedDatabase[]> {
  const current = await readCurrent(control, id);
  if (!current) return [];
  const { server, database, state } = current;
  return [{ slug, server: server.name, database, state, action: 'serve', holds: [], onlyHere: [] }];
}

/**
 * Drops databases that tenants do not need any more: those that killed runs have left, those
 * that are condemned, and those whose time has passed. Puts tenants back into service whose run
 * has ended behind the fence; a named tenant also without a fence (`retreatAlways`). A tenant
 * that another command works on is left out, unless it is named.
 * @param request with `isChosen`, no database without a fence is opened
 * @returns what was dropped, and what serves its tenant again
 * @throws {OperatorError} when the named tenant is worked on; when a database is not closed,
 *   has rows that are nowhere else, or a server cannot be used, after the others
 */
export async function pruneDatabases(
  installation: Installation,
  slug: string | undefined,
  observers: RunObservers = {},
  request: PruneRequest = {},
): Promise<PrunedDatabase[]> {
  const pruned: PrunedDatabase[] = [];
  const failures: unknown[] = [];
  const retreat =
    slug !== undefined && request.isChosen === undefined ? retreatAlways : retreatIfFenced;

  for (const each of slug === undefined ? await slugsToPrune(installation) : [slug]) {
    await pruneTenant(installation, each, request, context => retreat(context, observers)).then(
      dropped => pruned.push(...dropped),
      error => {
        if (slug !== undefined || !(error instanceof TenantBusyError)) failures.push(error);
      },
    );
  }

  if (slug !== undefined && failures.length > 0) throw failures[0];
  if (failures.length > 0) {
    throw new OperatorError(
      `The databases of ${countText(failures.length, 'tenant')} could not be dropped: ${errorText(failures[0])}. See ` +
        'bin/backoffice databases',
      { cause: failures[0] },
    );
  }

  return pruned;
}

async function fencedSlugs({ statements }: Installation): Promise<string[]> {
  const query = 'select slug from tenants join tenant_fences on tenant_guid = guid order by slug';
  const { rows } = await statements.query<{ slug: string }>(query);

  return rows.map(({ slug }) => slug);
}

async function slugsToPrune(installation: Installation): Promise<string[]> {
  const prunable = (await findPrunable(installation)).map(({ slug }) => slug);
  return [...new Set([...prunable, ...(await fencedSlugs(installation))])].sort();
}

async function pruneTenant(
  installation: Installation,
  slug: string,
  { isChosen, leaveSchemas = false }: PruneRequest,
  retreat: typeof retreatAlways,
): Promise<PrunedDatabase[]> {
  return withTenant(installation, slug, async (control, tenant) => {
    const context = { installation, control, tenant };
    const served = (await retreat(context)) ? await servedRow(context) : [];
    const found = await findPrunable(installation, slug, isChosen);
    const { closed, refusals } = await findClosed(context, found, leaveSchemas);
    await control.query(
      `update tenant_databases set state = 'condemned'
        where database_name = any ($1) and state in ('reserved', 'filled', 'kept')`,
      [closed.map(({ database }) => database)],
    );

    await dropCondemned(installation, control, tenant, leaveSchemas);
    if (refusals.length > 0) throw refusals[0];

    return [...served, ...closed];
  });
}

/**
 * Finds the databases that may be condemned, with their contents. A complete database that lets
 * the tenant in may have newer data, when the control database is of an earlier time: it stays
 * complete, so that a swap can put it in place. One that has rows which are nowhere else stays
 * too.
 */
async function findClosed(
  { installation, control, tenant }: RunContext,
  found: readonly PrunedDatabase[],
  leaveSchemas: boolean,
): Promise<{ closed: PrunedDatabase[]; refusals: unknown[] }> {
  const current = await readCurrent(control, tenant.id);
  const closed: PrunedDatabase[] = [];
  const refusals: unknown[] = [];
  const databases = await readDatabases(control, tenant.id, droppable);

  for (const each of found) {
    const database = databases.find(one => one.database === each.database);
    if (!database) continue;
    try {
      if (isComplete(each)) await requireClosed(installation, database, tenant.guid);
      const { all, rows } = await readHoldings(installation, database, current).catch(error => {
        if (isComplete(each) || !connectFailure(error)) throw error;
        // The database is condemned nevertheless, and is read before it is dropped.
        return { all: [], rows: [] };
      });
      if (rows.length > 0 && !leaveSchemas) throw notDroppedFor(database, rows);
      closed.push({ ...each, holds: all, onlyHere: rows });
    } catch (error) {
      refusals.push(notDropped(tenant.slug, database, error));
    }
  }

  return { closed, refusals };
}
