import type { Installation } from '../../installation.ts';
import { defineOperation } from '../command/operation.ts';
import { countText } from '../command/texts.ts';
import { openBackupTarget } from './open-backup-target.ts';

export const pruneOperation = defineOperation({
  name: 'backup prune',
  description: 'remove the archives that BACKUP_KEEP does not keep, as each run does, and those of purged tenants',
  fields: {},
  examples: ['backup prune'],
  access: 'installation',
  effect: 'changes',
  isRoutine: true,
  async plan(_, { installation }) {
    const removed = await planArchives(installation);
    return {
      document: { state: 'planned', removed },
      text: () => removed.join('\n') || 'Nothing would be removed.',
    };
  },
  async run(_, { installation, output }) {
    const { pruneArchives } = await import('./prune.ts');
    const { withBackupLock } = await import('./backup-lock.ts');
    const { requireOwner } = await import('./target-owner.ts');
    const { readConfig } = await import('../../config/config.ts');
    const target = await openBackupTarget();
    const removed = await withBackupLock(installation.controlUrl, 'archives', async control => {
      await requireOwner(control, target);
      return pruneArchives(control, target, readConfig().backup.keep);
    });
    output.result({ removed }, () => `${countText(removed, 'archive')} removed.`);
  },
});

/** @returns the files that would be removed */
async function planArchives({ controlUrl }: Installation): Promise<string[]> {
  const { planPrune } = await import('./prune.ts');
  const { readConfig } = await import('../../config/config.ts');
  const { withConnection } = await import('../../postgres/connection.ts');
  const target = await openBackupTarget();
  const archives = await withConnection(controlUrl, client => planPrune(client, target, readConfig().backup.keep));
  return archives.map(({ file }) => file);
}
