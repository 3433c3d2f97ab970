import { type Prefixed, type Server, Tenant } from '../../../control/control-entities.ts';
import type { Installation } from '../../../control/installation.ts';
import { requireNoLaterBuild } from '../../../control/tenant-head.ts';
import { OperatorError } from '../../../lib/log/operator-error.ts';
import { withConnection } from '../../../lib/postgres/connection.ts';
import { sqlState } from '../../../lib/postgres/database-error.ts';
import type { Queryable } from '../../../lib/postgres/shared-connection.ts';
import { type FleetObservers, measure, runFleet } from '../../command/run-fleet.ts';
import { errorText } from '../../command/texts.ts';
import { fillWith, requireKnownVersion } from '../../databases/copy/fill-database.ts';
import { namesUnlessAway, readForeignObjects } from '../../databases/copy/foreign-objects.ts';
import { reserveRoom } from '../../databases/copy/room.ts';
import { createAtVersion } from '../../databases/protocol/create-database.ts';
import { dropOwned } from '../../schema/owned-databases.ts';
import { headFingerprint } from '../../schema/template.ts';
import { countRows } from '../archive/archive-documents.ts';
import { ArchiveFault } from '../archive/archive-fault.ts';
import {
  type ArchiveRow,
  readArchiveRowsOf,
  recogniseArchive,
  recordDrilled,
  recordProof,
} from '../archive-rows.ts';
import { withBackupLock } from '../backup-lock.ts';
import {
  archivedData,
  membersNotRestored,
  type OpenedArchive,
  openArchive,
} from '../restore/archived-data.ts';
import { listArchivesOf } from '../restore/find-archive.ts';
import { readTenantKeys, type TenantKeys } from '../restore/open-keys.ts';
import type { Target } from '../target/target.ts';
import { findChangedBytes } from './changed-bytes.ts';
import { isScratchName, scratchName } from './scratch-names.ts';

/** The result of a drill for one archive. */
export interface DrillOutcome {
  slug: string;
  archive: string;
  state: 'proved' | 'failed';
  rows: number;
  ms: number;
  error: string | null;
  /** Parts of the tenant's database that no restore of the archive brings back. */
  notRestored: readonly string[];
  /** Later unproved archives that cannot be used, each with the reason. */
  refused: readonly RefusedArchive[];
}

/** An unproved archive that cannot be used. */
interface RefusedArchive {
  readonly name: string;
  readonly error: string;
}

/**
 * Proves that archives can be restored: does what a restore does (`fillWith`) with the newest
 * archive of each chosen tenant in a scratch database, and drops it. An unproved archive counts
 * from then on; of those that cannot be used, which a stranger may have put there, the drill
 * goes on to the next one. Tenants without a drill come first, then those whose last drill is
 * longest ago,
 * whatever became of it: one whose drills fail does not keep the others from theirs. If a run
 * removes an archive meanwhile, because `BACKUP_KEEP` keeps only newer ones, the newest one is
 * taken.
 * @throws {OperatorError} when another drill is in progress, this host opens no archive, or
 *   there is none
 */
export async function drillArchives(
  installation: Installation,
  target: Target,
  count: number,
  observers: FleetObservers<DrillOutcome>,
): Promise<DrillOutcome[]> {
  return withBackupLock(installation.controlUrl, 'drill', async control => {
    await target.check();
    const keys = await readTenantKeys(installation);
    const { em } = await installation.control();
    const tenants = await em.fork().find(Tenant, {}, { populate: ['server'] });
    const chosen = await chooseTenants(control, target, tenants, count);
    if (chosen.length === 0) {
      throw await noArchive(control, target);
    }

    for (const server of new Set(tenants.map(tenant => tenant.server))) {
      await dropScratchDatabases(server, installation.servers.adminUrl(server));
    }

    const drill = new Drill(installation, control, target, keys);
    const { signal } = observers;
    return runFleet(chosen, 1, observers, async each => {
      if (signal?.aborted) throw new OperatorError(endedText);
      return drill.run(each);
    });
  });
}

/** Returns the error of a target in which nothing is recorded. */
async function noArchive(control: Queryable, target: Target): Promise<OperatorError> {
  const { rows } = await control.query<{ target: string }>(
    `select backup_target as target from installation where backup_target <> $1`,
    [target.description],
  );
  const [other] = rows;

  return new OperatorError(
    other
      ? `No archive of a tenant is recorded in ${target.description}: runs write to ${other.target}. Set the BACKUP_TARGET that ` +
          'they have, with the same path'
      : 'There is no archive of a tenant. Make one: bin/backoffice backup run --all',
  );
}

const endedText = 'The drill was ended early. What was proved until then stays proved';

/** A tenant, with the archive that is drilled. */
interface DrilledTenant {
  readonly source: Tenant;
  readonly row: ArchiveRow;
  /** The time of the last drill of any archive of it, in ms; 0: none. */
  readonly drilledAt: number;
}

async function chooseTenants(
  control: Queryable,
  target: Target,
  tenants: readonly Tenant[],
  count: number,
): Promise<DrilledTenant[]> {
  const rows = await readArchiveRowsOf(
    control,
    target,
    tenants.map(({ guid }) => guid),
  );
  const byTenant = Map.groupBy(rows, ({ tenant }) => tenant);

  const newest = tenants.flatMap(source => {
    const own = byTenant.get(source.guid) ?? [];
    const row = own.find(mayBeDrilled);
    const drilledAt = Math.max(...own.map(each => each.drilledAt?.getTime() ?? 0));
    return row ? [{ row, source, drilledAt }] : [];
  });

  return newest.sort((one, other) => one.drilledAt - other.drilledAt).slice(0, count);
}

/** True for a complete archive, and for an unproved one that nobody has found to be faulty. */
function mayBeDrilled({ state, fault }: ArchiveRow): boolean {
  return state === 'complete' || (state === 'unproved' && fault === null);
}

class Drill {
  readonly #installation: Installation;
  readonly #control: Queryable;
  readonly #target: Target;
  readonly #keys: TenantKeys;

  constructor(installation: Installation, control: Queryable, target: Target, keys: TenantKeys) {
    this.#installation = installation;
    this.#control = control;
    this.#target = target;
    this.#keys = keys;
  }

  async run({ row, source }: DrilledTenant): Promise<DrillOutcome> {
    let { name } = row;
    let rows = 0;
    let members: string[] = [];
    const refused: RefusedArchive[] = [];

    const { ms, error } = await measure(async () => {
      await requireNoLaterBuild(source);
      await recordDrilled(this.#control, this.#target, name);
      for (let drilled = row; ; name = drilled.name) {
        try {
          const opened = await this.#open(source, drilled);
          rows = countRows(opened.manifest);
          members = membersNotRestored(opened);
          await this.#restore(source, archivedData(opened));
          return await this.#record(name, null);
        } catch (error) {
          if (!(error instanceof ArchiveFault)) throw error;

          const next = await this.#nextOf(source, drilled, error, refused);
          if (next) {
            drilled = next;
            continue;
          }

          const fault = await this.#faultOf(drilled, error);
          if (fault.isOfArchive) await this.#record(name, errorText(fault));
          throw fault;
        }
      }
    });
    const state = error === null ? 'proved' : 'failed';
    const notRestored = [...members, ...(await this.#listOthers(source))];

    return { slug: source.slug, archive: name, state, rows, ms, error, notRestored, refused };
  }

  /**
   * Returns the archive that is drilled in place of one that cannot be used: the newest one if
   * a run has removed that, and the next one after an unproved one. Undefined: there is none.
   * @param refused the unproved archives that cannot be used, to which this one is added
   */
  async #nextOf(
    source: Tenant,
    drilled: ArchiveRow,
    fault: ArchiveFault,
    refused: RefusedArchive[],
  ): Promise<ArchiveRow | undefined> {
    const isUnproved = drilled.state === 'unproved';
    if (!isUnproved && fault.kind !== 'missing') return undefined;

    const rows = await this.#drillable(source);
    const left = rows.filter(({ name }) => refused.every(each => each.name !== name));
    const [next] = isUnproved ? left.filter(({ name }) => name !== drilled.name) : left;
    if (!next || next.name === drilled.name) return undefined;

    if (isUnproved) {
      if (fault.isOfArchive) await this.#record(drilled.name, errorText(fault));
      refused.push({ name: drilled.name, error: errorText(fault) });
    }
    return next;
  }

  /**
   * Returns the fault of an archive. Where no identity opens it, its bytes show whether it is
   * the archive that was written.
   */
  async #faultOf(drilled: ArchiveRow, fault: ArchiveFault): Promise<ArchiveFault> {
    if (fault.kind !== 'sealed' || !drilled.bytes?.sha256) return fault;

    const changed = await findChangedBytes(this.#target, drilled);
    return changed === undefined ? fault : new ArchiveFault('damaged', changed, { cause: fault });
  }

  /** Opens an archive; an unproved one is complete when its code is right. */
  async #open({ guid }: Tenant, row: ArchiveRow): Promise<OpenedArchive> {
    const target = this.#target;
    if (row.bytes !== null) {
      return openArchive(target, { ...row, size: row.bytes.size, row }, this.#keys);
    }

    const stored = await listArchivesOf(target, this.#keys.installation, guid, [row]);
    const archive = stored.find(({ name }) => name === row.name);
    if (!archive) throw new ArchiveFault('missing', `${target.description} does not list it`);

    const opened = await openArchive(target, archive, this.#keys);
    await recogniseArchive(this.#control, target, archive, opened);
    return opened;
  }

  /** Returns the archives of a tenant that may be drilled now, the newest first. */
  async #drillable({ guid }: Tenant): Promise<ArchiveRow[]> {
    const rows = await readArchiveRowsOf(this.#control, this.#target, [guid]);

    return rows.filter(mayBeDrilled);
  }

  async #restore({ slug, server }: Tenant, data: ReturnType<typeof archivedData>): Promise<void> {
    const adminUrl = this.#installation.servers.adminUrl(server);
    const fill = fillWith(this.#installation, data);

    // Reads the template, unless its objects are stored already, while few connections of the
    // command are open (`maxNested`).
    await headFingerprint(this.#installation.control, server, adminUrl);

    const copy = { server, adminUrl, of: slug, bytes: data.bytes };
    const release = await reserveRoom(this.#control, copy);
    try {
      await withScratchDatabase(server, adminUrl, data.schemaVersion, database =>
        fill({ server, database }),
      );
    } finally {
      await release();
    }
  }

  async #record(name: string, fault: string | null): Promise<void> {
    await recordProof(this.#control, this.#target, name, fault, 'proved');
  }

  /**
   * Returns the objects of others in the database of a tenant that have no rows of their own.
   */
  async #listOthers({
    server,
    databaseName: database,
    roleName: role,
  }: Tenant): Promise<readonly string[]> {
    return namesUnlessAway(async () => {
      const found = await readForeignObjects(this.#installation, { server, database, role }).catch(
        error => {
          if (['3D000', '55000'].includes(sqlState(error) ?? '')) return undefined; // lost
          throw error;
        },
      );
      return found?.others ?? [];
    });
  }
}

/**
 * Runs `work` on a new database with the schema of one version, and drops it. Its name is
 * random and never chosen by an operator, so that no drill can touch the database of a tenant.
 * @param version the last migration that the database gets
 * @throws {OperatorError} when this build does not have the migration
 */
async function withScratchDatabase(
  server: Server,
  adminUrl: string,
  version: string,
  work: (database: string) => Promise<void>,
): Promise<void> {
  await requireKnownVersion(version);
  const name = scratchName(server);

  await withConnection(adminUrl, async admin => {
    try {
      await createAtVersion(admin, server, name, { adminUrl, version });
      await work(name);
    } finally {
      await dropOwned(admin, name);
    }
  });
}

/**
 * Drops the scratch databases that killed drills have left on a server. The caller holds the
 * lock of drills.
 */
async function dropScratchDatabases(server: Prefixed, adminUrl: string): Promise<void> {
  await withConnection(adminUrl, async admin => {
    const { rows } = await admin.query<{ name: string }>('select datname as name from pg_database');

    for (const { name } of rows) {
      if (isScratchName(server, name)) await dropOwned(admin, name);
    }
  });
}
