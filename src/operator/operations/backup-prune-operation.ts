import type { BaseRetention } from '../../config-values.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../operator-error.ts';
import { countText } from '../count-text.ts';
import type { PrunedBases } from '../restore/moment/prune-base-backups.ts';
import { heldText } from './backup-text.ts';
import { openBackupTarget } from './open-backup-target.ts';
import { defineOperation } from './operation.ts';
import { flag, option } from './operation-fields.ts';
import { parseBaseRetention } from './parse-base-retention.ts';

interface ServerBases extends PrunedBases {
  server: string;
}

export const pruneOperation = defineOperation({
  name: 'backup prune',
  description: 'remove the archives that BACKUP_KEEP does not keep, as each run does, and those of purged tenants',
  fields: {
    base: flag('instead, the base backups that BASE_BACKUP_KEEP does not keep, and their write-ahead log'),
    keep: option('<number|time>', 'with --base: which base backups stay', { parse: parseBaseRetention }),
  },
  examples: ['backup prune', 'backup prune --base --keep 7d # base backups and their write-ahead log'],
  access: 'installation',
  effect: 'changes',
  async plan({ base, keep }, { installation }) {
    requireBase(base, keep);
    const removed = base ? await planBases(keep) : await planArchives(installation);
    return {
      document: { state: 'planned', removed },
      text: () => removed.join('\n') || 'Nothing would be removed.',
    };
  },
  async run({ base, keep }, { installation, output }) {
    requireBase(base, keep);
    if (base) {
      const { servers, folder } = await pruneBases(keep);
      const none = `${folder} has no base backup.`;
      return output.result({ servers }, () => servers.map(prunedText).join('\n') || none);
    }
    const { pruneArchives } = await import('../backup/prune.ts');
    const { withBackupLease } = await import('../backup/lease.ts');
    const { requireOwner } = await import('../backup/target-owner.ts');
    const { readConfig } = await import('../../config.ts');
    const target = await openBackupTarget();
    const removed = await withBackupLease(installation.controlUrl, 'archives', async control => {
      await requireOwner(control, target);
      return pruneArchives(control, target, readConfig().backup.keep);
    });
    return output.result({ removed }, () => `${countText(removed, 'archive')} removed.`);
  },
});

function requireBase(base: boolean, keep: BaseRetention | undefined): void {
  if (keep && !base) throw new OperatorError('--keep needs --base', { usage: true });
}

/** @returns the files that would be removed */
async function planArchives({ controlUrl }: Installation): Promise<string[]> {
  const { planPrune } = await import('../backup/prune.ts');
  const { readConfig } = await import('../../config.ts');
  const { withConnection } = await import('../../postgres/connection.ts');
  const target = await openBackupTarget();
  const archives = await withConnection(controlUrl, client => planPrune(client, target, readConfig().backup.keep));
  return archives.map(({ file }) => file);
}

/** @returns the base backups that would be removed, each after its server */
async function planBases(keep: BaseRetention | undefined): Promise<string[]> {
  const { readConfig } = await import('../../config.ts');
  const { baseFolder, listBaseFolders } = await import('../restore/moment/base-folder.ts');
  const { planBasePrune } = await import('../restore/moment/prune-base-backups.ts');
  const { baseBackupDir: folder, baseBackupKeep } = readConfig();
  const removed: string[] = [];
  for (const server of await listBaseFolders(folder)) {
    const ids = await planBasePrune(baseFolder(folder, server), keep ?? baseBackupKeep, new Date());
    removed.push(...ids.map(id => `${server} ${id}`));
  }
  return removed;
}

async function pruneBases(keep: BaseRetention | undefined): Promise<{ servers: ServerBases[]; folder: string }> {
  const { readConfig } = await import('../../config.ts');
  const { baseFolder, listBaseFolders } = await import('../restore/moment/base-folder.ts');
  const { pruneBaseBackups } = await import('../restore/moment/prune-base-backups.ts');
  const { baseBackupDir: folder, baseBackupKeep } = readConfig();
  const servers: ServerBases[] = [];
  for (const server of await listBaseFolders(folder)) {
    const pruned = await pruneBaseBackups(baseFolder(folder, server), keep ?? baseBackupKeep, new Date());
    servers.push({ server, ...pruned });
  }
  return { servers, folder };
}

function prunedText({ server, baseBackups, segments, held, from }: ServerBases): string {
  const removed = `${countText(baseBackups, 'base backup')} and ${countText(segments, 'segment')} removed.`;
  const reachable = from ? `Moments from ${from} on can be restored.` : 'It has no base backup.';
  return [`${server}: ${removed}`, ...held.map(heldText), reachable].join(' ');
}
