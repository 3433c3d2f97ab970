import { randomBytes } from 'node:crypto';
import { type Server, Tenant } from '../../control/control-entities.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../log/operator-error.ts';
import { withConnection } from '../../postgres/connection.ts';
import { sqlState } from '../../postgres/database-error.ts';
import { quoteIdentifier as quote } from '../../postgres/quote.ts';
import { type Queryable, shareConnection } from '../../postgres/shared-connection.ts';
import { type FleetObservers, runFleet, timed } from '../command/run-fleet.ts';
import { errorText } from '../command/texts.ts';
import { createAtVersion } from '../databases/create-database.ts';
import { fillWith, requireKnownVersion } from '../databases/fill-database.ts';
import { namesUnlessAway, readForeignObjects, rowsLeft } from '../databases/foreign-objects.ts';
import { headFingerprint } from '../schema/template.ts';
import { withBackupLock } from './backup-lock.ts';
import { createKeyring, type Keyring, opensKey, readKeys } from './data-keys.ts';
import { ArchiveFault, type ArchiveFaultKind } from './format/archive-fault.ts';
import { checkRows } from './format/archive-file.ts';
import { type LedgerEntry, readComplete, readNewest, recordCheck } from './ledger.ts';
import { archiveData, openArchive } from './open-archive.ts';
import { readTargetKeys } from './target-keys.ts';
import type { BackupTarget } from './targets/backup-target.ts';

/** The result of a check of one archive. */
export interface ArchiveCheck extends Pick<LedgerEntry, 'id' | 'slug' | 'file' | 'bytes'> {
  fault: ArchiveFaultKind | null;
  /** What is wrong, as the end of a sentence that begins with the file. */
  message: string | null;
}

const concurrentReads = 4;

/**
 * Checks every byte of archives: reads, authenticates, decompresses and counts their rows, with the keys that the
 * target has, as after the loss of the control database. Records the result of each.
 * @param tenant only those of the tenant with this guid; undefined: all, those of the control database included
 * @throws {OperatorError} when the target cannot be reached
 */
export async function verifyArchives(
  { controlUrl, secrets }: Installation,
  target: BackupTarget,
  tenant: string | undefined,
  observers: FleetObservers<ArchiveCheck>,
): Promise<ArchiveCheck[]> {
  return withConnection(controlUrl, async client => {
    const control = shareConnection(client);
    const archives = await readComplete(control, target.description, tenant);
    const keyring = createKeyring(await readTargetKeys(target), secrets);
    const stored = (await readKeys(control)).filter(key => opensKey(secrets, key));
    const known = new Set(stored.map(({ fingerprint }) => fingerprint));
    const check = (archive: LedgerEntry) => checkArchive(control, target, keyring, known, archive);
    return runFleet(archives, concurrentReads, observers, check);
  });
}

/** It is no fault of the archive: the control database has its key. */
const lostKey =
  'the target has no key of it that MASTER_KEY opens. Remove the files of its key from the folder keys, if there are any, and write it again: bin/backoffice backup run --all';

/** @param known fingerprints of the keys that the control database has */
async function checkArchive(
  control: Queryable,
  target: BackupTarget,
  keyring: Keyring,
  known: ReadonlySet<string>,
  archive: LedgerEntry,
): Promise<ArchiveCheck> {
  const { id, slug, file, bytes } = archive;
  const { kind, message } = await openArchive(target, keyring, archive, checkRows).then(
    () => ({ kind: null, message: null }),
    error => {
      if (error instanceof ArchiveFault) return error;
      throw error;
    },
  );
  const isKeyLost = kind === 'wrong_key' && known.has(archive.keyFingerprint);
  if (!isKeyLost) await recordCheck(control, id, 'verified', message);
  return { id, slug, file, bytes, fault: kind, message: isKeyLost ? lostKey : message };
}

/** The result of a drill for one archive. */
export interface DrillOutcome {
  slug: string | null;
  file: string;
  state: 'proved' | 'failed';
  rows: number;
  ms: number;
  error: string | null;
  /** What the database of the tenant has now, and no archive of it. */
  notArchived: readonly string[];
}

/**
 * Proves that archives can be restored: does what a restore does (`fillWith`) with the newest archive of each chosen
 * tenant in a scratch database, and drops it. Tenants whose newest archive was never proved come first, then those that
 * were proved longest ago.
 * @throws {OperatorError} when another drill is in progress, or there is no archive
 */
export async function drillArchives(
  installation: Installation,
  target: BackupTarget,
  count: number,
  observers: FleetObservers<DrillOutcome>,
): Promise<DrillOutcome[]> {
  return withBackupLock(installation.controlUrl, 'drill', async control => {
    const archives = await chooseArchives(control, target, count);
    if (archives.length === 0)
      throw new OperatorError('There is no archive of a tenant. Make one: bin/backoffice backup run --all');
    const keyring = createKeyring(await readKeys(control), installation.secrets);
    const tenants = await (await installation.control()).em.fork().findAll(Tenant, { populate: ['server'] });
    const sources = new Map<string | null, Tenant>(tenants.map(tenant => [tenant.guid, tenant]));
    for (const server of new Set(tenants.map(tenant => tenant.server)))
      await dropScratchDatabases(server, installation.servers.adminUrl(server));
    const placed = archives.flatMap(archive => {
      const source = sources.get(archive.tenant);
      return source ? [{ archive, source }] : []; // without one, it has been purged meanwhile
    });
    return runFleet(placed, 1, observers, each => drill(installation, control, target, keyring, each));
  });
}

async function chooseArchives(control: Queryable, target: BackupTarget, count: number): Promise<LedgerEntry[]> {
  const newest = [...(await readNewest(control, target.description)).values()].filter(({ tenant }) => tenant !== null);
  const provedAt = (archive: LedgerEntry): number => archive.provedAt?.getTime() ?? 0;
  return newest.sort((a, b) => provedAt(a) - provedAt(b)).slice(0, count);
}

async function drill(
  installation: Installation,
  control: Queryable,
  target: BackupTarget,
  keyring: Keyring,
  { archive, source }: { archive: LedgerEntry; source: Tenant },
): Promise<DrillOutcome> {
  const { server } = source;
  const { id, slug, file, rows } = archive;
  const prove = async (): Promise<void> => {
    const fill = fillWith(installation, archiveData(target, keyring, archive));
    const adminUrl = installation.servers.adminUrl(server);
    // Reads the template, if nobody has yet, while few connections of the command are open (`maxNested`).
    await headFingerprint(installation.control, server, adminUrl);
    await withScratchDatabase(server, adminUrl, archive.schemaVersion ?? '', database => fill({ server, database }));
    await recordCheck(control, id, 'proved', null);
  };
  const recordFault = async (error: unknown): Promise<never> => {
    if (error instanceof ArchiveFault) await recordCheck(control, id, 'proved', errorText(error));
    throw error;
  };
  const { ms, error } = await timed(() => prove().catch(recordFault));
  const state = error === null ? 'proved' : 'failed';
  return { slug, file, state, rows, ms, error, notArchived: await listNotArchived(installation, source) };
}

/** Archives have the tables of `public`, also those that somebody else has made there. */
async function listNotArchived(
  installation: Installation,
  { server, databaseName: database, roleName: role }: Tenant,
): Promise<readonly string[]> {
  return namesUnlessAway(async () => {
    const found = await readForeignObjects(installation, { server, database, role }).catch(error => {
      if (['3D000', '55000'].includes(sqlState(error) ?? '')) return undefined; // it is lost
      throw error;
    });
    return found ? [...rowsLeft(found), ...found.others] : [];
  });
}

/**
 * Runs `work` on a new database with the schema of one version, and drops it. Its name is random and never chosen by an
 * operator, so that no drill can touch the database of a tenant.
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
  const name = `${server.prefix}_drill_${randomBytes(6).toString('hex')}`;
  await withConnection(adminUrl, async admin => {
    try {
      await createAtVersion(admin, server, name, { adminUrl, version });
      await work(name);
    } finally {
      await admin.query(`drop database if exists ${quote(name)} with (force)`);
    }
  });
}

/** Drops the scratch databases that killed drills have left on a server. The caller holds the lock of drills. */
async function dropScratchDatabases({ prefix }: Pick<Server, 'prefix'>, adminUrl: string): Promise<void> {
  await withConnection(adminUrl, async admin => {
    const { rows } = await admin.query<{ name: string }>('select datname as name from pg_database');
    const pattern = new RegExp(`^${prefix}_drill_[0-9a-f]{12}$`);
    for (const { name } of rows)
      if (pattern.test(name)) await admin.query(`drop database if exists ${quote(name)} with (force)`);
  });
}
