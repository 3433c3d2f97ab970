import type pg from 'pg';
import type { Tenant } from '../../../control/control-entities.ts';
import type { Installation } from '../../../control/installation.ts';
import { OperatorError } from '../../../lib/log/operator-error.ts';
import { withConnection } from '../../../lib/postgres/connection.ts';
import { quoteIdentifier } from '../../../lib/postgres/quote.ts';
import { findTenant } from '../../registry/tenants.ts';
import { type EarlierData, fillWith, requireKnownVersion } from '../copy/fill-database.ts';
import { readHoldings } from '../copy/foreign-objects.ts';
import { findWithoutEntityIn } from '../copy/users-without-entity.ts';
import { hasLost, isLostOnServer, lostText } from '../protocol/lost-database.ts';
import {
  addressOf,
  type NewerDatabase,
  newerError,
  newerOrigin,
  recordNewer,
} from '../protocol/newer-database.ts';
import { type RunContext, type RunObservers, runDatabases } from '../protocol/run-databases.ts';
import { withTenant } from '../protocol/with-tenant.ts';
import {
  type KeptBy,
  type LockedTenant,
  readCurrent,
  readDatabases,
  type TenantDatabase,
} from '../store/database-store.ts';
import { planFree, requireFree } from './require-free.ts';

/**
 * Restores earlier data of a tenant in a database with new names. `place` puts it beside the
 * tenant, where nobody uses it, with the ids of the users, so that the two can be compared and
 * exchanged. `replace` puts it in the place of a lost database, and serves the tenant again. If
 * the command was killed at any point, run it again; a `replace` may then use other data.
 * @throws {OperatorError} when this build does not know the version of the data, another
 *   command works on the tenant, the database to replace exists, that to be placed beside is
 *   lost, or the control database names a former one
 */
export async function restoreDatabase(
  installation: Installation,
  slug: string,
  data: EarlierData,
  goal: 'place' | 'replace',
  observers: RunObservers = {},
): Promise<TenantDatabase> {
  await requireKnownVersion(data.schemaVersion);
  return withTenant(installation, slug, async (control, tenant) => {
    const found = await findTenant(installation, slug);
    const context = { installation, control, tenant };
    await requireFree(context, { staysFenced: true });
    await requireGoal(installation, found, goal);
    const placement = {
      server: found.server,
      origin: data.description,
      version: data.schemaVersion,
      fill: fillWith(installation, data),
      // A tenant without a database has nothing to lose, and nobody may be there to make room.
      copy: {
        bytes: data.bytes,
        warn: goal === 'replace' ? (observers.warn ?? ignore) : undefined,
      },
    };

    const plan = { placement, keptBy: 'lost' } as const;
    const { target } = await runDatabases(context, goal, plan, observers);
    if (!target) throw new Error('nothing was placed');

    return target;
  });
}

function ignore(): void {}

/**
 * Checks that data of a tenant can be restored, and changes nothing.
 * @throws as `planFree`
 * @throws {OperatorError} when the tenant has the database that is to be replaced, or lacks the
 *   one that data are to be placed beside
 */
export async function requireRestorableTenant(
  installation: Installation,
  tenant: Tenant,
  goal: 'place' | 'replace',
): Promise<void> {
  await planFree(installation, tenant);
  await requireGoal(installation, tenant, goal);
}

async function requireGoal(
  installation: Installation,
  { slug, server, databaseName: database, roleName: role }: Tenant,
  goal: 'place' | 'replace',
): Promise<void> {
  const lost = await isLostOnServer(installation, { server, database, role });
  if (lost === (goal === 'replace')) return;
  throw new OperatorError(
    lost
      ? `Server ${server.name} does not have database ${database} of ${slug}: nothing was changed. Restore in its ` +
          'place, with --lost'
      : `Server ${server.name} has database ${database} of ${slug}: nothing was changed. Restore beside it ` +
          `(without --lost), or rename it if it cannot be used: alter database ${quoteIdentifier(database)} rename to …;`,
  );
}

/** `swap` puts restored data in place, `back` the former data again. */
export type SwitchKind = 'swap' | 'back';

export interface SwitchResult {
  tenant: string;
  /** The present database of the tenant; `origin` is the source of its data. */
  database: string;
  origin: string;
  /**
   * The longest time that requests of the tenant waited, in ms; 0 if the tenant had that
   * database already.
   */
  pauseMs: number;
}

interface SwitchRequest {
  kind: SwitchKind;
  /** The name of the database; needed for a swap if there are several. */
  database?: string | undefined;
  /** The seconds for which the present database is kept. */
  keepSeconds: number;
  /** True to end sessions of others in both databases. */
  endSessions?: boolean;
}

/**
 * Gives a tenant restored data, or its former data, in place of the present one, which is kept
 * for some time. Requests of the tenant wait meanwhile. If the command was killed at any point,
 * run it again, in either direction.
 * @throws {OperatorError} when there is no such data, or another command works on the tenant
 */
export async function switchDatabase(
  installation: Installation,
  slug: string,
  { kind, database, keepSeconds, endSessions = false }: SwitchRequest,
  observers: RunObservers = {},
): Promise<SwitchResult> {
  return withTenant(installation, slug, async (control, tenant) => {
    await requireVersion(installation, slug);
    const context = { installation, control, tenant };
    const newer = await requireFree(context, { adopts: true });
    if (newer) {
      const wanted = await nameWanted(context, kind, database);
      return endEarlierTime(context, newer, { kind, database: wanted, keepSeconds }, observers);
    }

    const { target, isCurrent } = await chooseTarget(control, tenant, kind, database);
    if (isCurrent) {
      return { tenant: slug, database: target.database, origin: target.origin, pauseMs: 0 };
    }
    const plan = { target, keptBy: kind, keepSeconds, endSessions } as const;
    const { pauseMs } = await runDatabases(context, 'switch', plan, observers);
    return { tenant: slug, database: target.database, origin: target.origin, pauseMs };
  });
}

/** @throws {OperatorError} when a killed migration has left the tenant at no known version */
async function requireVersion(installation: Installation, slug: string): Promise<void> {
  const { status, schemaVersion } = await findTenant(installation, slug);
  if (schemaVersion || status === 'provisioning') return;

  throw new OperatorError(`${slug} is being migrated: bin/backoffice migrate ${slug}`);
}

/** Returns the name that an operator has given; without one, the name of the only candidate. */
async function nameWanted(
  { control, tenant }: Pick<RunContext, 'control' | 'tenant'>,
  kind: SwitchKind,
  name: string | undefined,
): Promise<string | undefined> {
  if (name !== undefined) return name;

  const chosen = await chooseTarget(control, tenant, kind, undefined).catch(() => undefined);
  return chosen?.target.database;
}

/**
 * Lets a tenant go on whose former database the control database names: in the newer database,
 * or, where that is gone for ever, in the former one.
 * @throws {OperatorError} when the operator names neither
 */
async function endEarlierTime(
  context: RunContext,
  newer: NewerDatabase,
  { kind, database, keepSeconds }: Pick<SwitchRequest, 'kind' | 'database' | 'keepSeconds'>,
  observers: RunObservers,
): Promise<SwitchResult> {
  const { slug } = context.tenant;
  const { former, isFormerLost } = newer;

  if (database === former.database && !isFormerLost) {
    const replacedBy = await addressOf(context, newer);
    await runDatabases(context, 'serve former', { former: { replacedBy } }, observers);
    return { tenant: slug, database, origin: former.origin, pauseMs: 0 };
  }
  if (database !== newer.database) throw newerError(slug, newer);

  const target = await recordNewer(context, newer);
  if (isFormerLost) {
    await runDatabases(context, 'adopt for lost', { target, keptBy: 'lost' }, observers);
  } else {
    await runDatabases(context, 'adopt', { target, keptBy: kind, keepSeconds }, observers);
  }

  return { tenant: slug, database, origin: target.origin, pauseMs: 0 };
}

/**
 * Returns the database that `switchDatabase` would put in place, and the objects of others that
 * stay in the present one. Changes nothing.
 * @throws as `chooseTarget`
 */
export async function planSwitch(
  installation: Installation,
  slug: string,
  kind: SwitchKind,
  database: string | undefined,
): Promise<PlannedSwitch> {
  const found = await findTenant(installation, slug);
  const newer = await planFree(installation, found, { adopts: true });

  return withConnection(installation.controlUrl, async control => {
    const { id, guid } = found;
    const tenant = { id, guid, slug };
    if (newer) {
      const wanted = await nameWanted({ control, tenant }, kind, database);
      return planEndOfEarlierTime(slug, newer, wanted);
    }

    const chosen = await chooseTarget(control, tenant, kind, database);
    const current = await readCurrent(control, id);
    if (chosen.isCurrent || !current) return { ...chosen, stays: [], withoutEntity: [] };
    if (await hasLost(installation, current)) throw new OperatorError(lostText(slug, current));

    const { all } = await readHoldings(installation, current, chosen.target);
    const target = await readHoldings(installation, chosen.target, undefined);
    return {
      ...chosen,
      stays: all.filter(name => !target.all.includes(name)),
      withoutEntity: await findWithoutEntityIn(installation, id, chosen.target),
    };
  });
}

/** The database that a switch would put in place, and what would stay in the present one. */
export interface PlannedSwitch {
  readonly target: Pick<TenantDatabase, 'database' | 'origin'>;
  /** True if the tenant has it already. */
  readonly isCurrent: boolean;
  readonly stays: readonly string[];
  /** The users of scope `Self` whose entity the data does not have. */
  readonly withoutEntity: readonly string[];
}

/** @throws as `endEarlierTime` */
function planEndOfEarlierTime(
  slug: string,
  newer: NewerDatabase,
  database: string | undefined,
): PlannedSwitch {
  const { former, isFormerLost } = newer;
  const mayServeFormer = database === former.database && !isFormerLost;
  if (!mayServeFormer && database !== newer.database) throw newerError(slug, newer);

  const origin = mayServeFormer ? former.origin : newerOrigin;
  return { target: { database, origin }, isCurrent: false, stays: [], withoutEntity: [] };
}

/**
 * Returns the database that a switch would put in place, or has put in place already.
 * @param name of the database; undefined: the only restored one, or the one that the last swap
 *   has replaced
 * @throws {OperatorError} when there is none, or there are several
 */
async function chooseTarget(
  control: pg.Client,
  { id, slug }: LockedTenant,
  kind: SwitchKind,
  name: string | undefined,
): Promise<{ target: TenantDatabase; isCurrent: boolean }> {
  const all = await readDatabases(control, id, ['current', 'filled', 'kept']);
  const isNamed = ({ database }: TenantDatabase): boolean =>
    name === undefined || database === name;
  const isCandidate = ({ state, keptBy }: TenantDatabase): boolean =>
    kind === 'swap' ? state === 'filled' || keptBy === 'back' : keptBy === 'swap';
  const candidates = all.filter(each => isNamed(each) && isCandidate(each));
  const [target, ...others] = candidates;
  if (target && others.length > 0 && kind === 'swap') throw ambiguousName(slug, candidates);
  if (target) return { target, isCurrent: false };

  const opposite: KeptBy = kind === 'swap' ? 'swap' : 'back';
  const current = all.find(each => each.state === 'current' && isNamed(each));
  if (current && all.some(({ keptBy }) => keptBy === opposite)) {
    return { target: current, isCurrent: true };
  }

  throw name !== undefined || kind === 'swap'
    ? nothingBeside(slug, name)
    : new OperatorError(
        `No swap of ${slug} can be undone. See its databases: bin/backoffice databases ${slug}`,
      );
}

/**
 * Returns the database beside the present one of a tenant: restored data, or the former data.
 * @param name of the database; undefined: the only one, apart from those of moves
 * @throws {OperatorError} when there is none, or there are several
 */
export function chooseOther(
  slug: string,
  all: readonly TenantDatabase[],
  name: string | undefined,
): TenantDatabase {
  const found = all.filter(({ database, keptBy }) =>
    name === undefined ? keptBy !== 'move' : database === name,
  );
  const [other, ...others] = found;
  if (other && others.length === 0) return other;
  throw other ? ambiguousName(slug, found) : nothingBeside(slug, name);
}

function ambiguousName(slug: string, found: readonly TenantDatabase[]): OperatorError {
  const names = found.map(({ database }) => `--database ${database}`).join(' or ');
  return new OperatorError(`${slug} has several such databases. Name one of them: ${names}`, {
    usage: true,
  });
}

function nothingBeside(slug: string, name: string | undefined): OperatorError {
  if (name !== undefined) {
    return new OperatorError(
      `${slug} has no database ${name} for that. List them: bin/backoffice databases ${slug}`,
    );
  }
  const archives = `bin/backoffice backup list ${slug}; bin/backoffice restore ${slug} --archive <name>`;
  return new OperatorError(`Nothing is restored beside ${slug}. Restore an archive: ${archives}`);
}
