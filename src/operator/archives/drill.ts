import { type Server, Tenant } from '../../control/control-entities.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../log/operator-error.ts';
import type { Queryable } from '../../postgres/shared-connection.ts';
import { type FleetObservers, runFleet, timed } from '../command/run-fleet.ts';
import { errorText } from '../command/texts.ts';
import { fillWith } from '../databases/fill-database.ts';
import { headFingerprint } from '../schema/template-fingerprint.ts';
import { withBackupLock } from './backup-lock.ts';
import { createKeyring, type Keyring, readKeys } from './data-keys.ts';
import { ArchiveFault } from './format/archive-fault.ts';
import { type LedgerEntry, readNewest, recordCheck } from './ledger.ts';
import { archiveData } from './open-archive.ts';
import { dropScratchDatabases, withScratchDatabase } from './scratch-database.ts';
import type { BackupTarget } from './targets/backup-target.ts';

/** The result of a drill for one archive. */
export interface DrillOutcome {
  slug: string | null;
  file: string;
  state: 'proved' | 'failed';
  rows: number;
  ms: number;
  error: string | null;
}

/**
 * Proves that archives can be restored: does what a restore does (`fillWith`) with the newest archive of each chosen
 * tenant in a scratch database, and drops it. Tenants whose newest archive was never proved come first, then those that were proved longest
 * ago.
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
      throw new OperatorError('There is no archive of a tenant. Make one: npx backoffice backup run --all');
    const keyring = createKeyring(await readKeys(control), installation.secrets);
    const tenants = await installation.control.em.fork().findAll(Tenant, { populate: ['server'] });
    const servers = new Map<string | null, Server>(tenants.map(({ guid, server }) => [guid, server]));
    for (const server of new Set(servers.values()))
      await dropScratchDatabases(server, installation.servers.adminUrl(server));
    const placed = archives.flatMap(archive => {
      const server = servers.get(archive.tenant);
      return server ? [{ archive, server }] : []; // without a server, it has been purged meanwhile
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
  { archive, server }: { archive: LedgerEntry; server: Server },
): Promise<DrillOutcome> {
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
  return { slug, file, state: error === null ? 'proved' : 'failed', rows, ms, error };
}
