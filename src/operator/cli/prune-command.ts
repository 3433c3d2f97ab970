import type { Command } from 'commander';
import type { BaseRetention } from '../../config-values.ts';
import { OperatorError } from '../../operator-error.ts';
import { countText } from '../count-text.ts';
import type { PrunedBases } from '../restore/moment/prune-base-backups.ts';
import { withInstallation } from './command.ts';
import { jsonOption, type OutputOptions, printResult } from './output.ts';
import { parseBaseRetention } from './parse-base-retention.ts';

interface PruneOptions extends OutputOptions {
  base?: boolean;
  keep?: BaseRetention;
}

/** Adds `backup prune`. */
export function addPruneCommand(backup: Command): void {
  backup
    .command('prune')
    .description('remove the archives that BACKUP_KEEP does not keep, as each run does, and those of purged tenants')
    .option('--base', 'instead, the base backups that BASE_BACKUP_KEEP does not keep, and their write-ahead log')
    .option('--keep <number|time>', 'with --base: which base backups stay', parseBaseRetention)
    .option(...jsonOption)
    .action(
      withInstallation(async (installation, options: PruneOptions) => {
        if (options.keep && !options.base) throw new OperatorError('--keep needs --base', { usage: true });
        if (options.base) return pruneBases(options);
        const { pruneArchives } = await import('../backup/prune.ts');
        const { withBackupLease } = await import('../backup/lease.ts');
        const { openTarget } = await import('../backup/targets/open-target.ts');
        const { readConfig } = await import('../../config.ts');
        const config = readConfig().backup;
        const target = openTarget(config);
        const removed = await withBackupLease(installation.controlUrl, 'archives', control =>
          pruneArchives(control, target, config.keep),
        );
        return printResult(options, { removed }, () => `${countText(removed, 'archive')} removed.`);
      }),
    );
}

async function pruneBases(options: PruneOptions): Promise<void> {
  const { readConfig } = await import('../../config.ts');
  const { baseFolder, listBaseFolders } = await import('../restore/moment/base-folder.ts');
  const { pruneBaseBackups } = await import('../restore/moment/prune-base-backups.ts');
  const { baseBackupDir, baseBackupKeep } = readConfig();
  const servers: ({ server: string } & PrunedBases)[] = [];
  for (const server of await listBaseFolders(baseBackupDir)) {
    const pruned = await pruneBaseBackups(
      baseFolder(baseBackupDir, server),
      options.keep ?? baseBackupKeep,
      new Date(),
    );
    servers.push({ server, ...pruned });
  }
  printResult(options, { servers }, () => servers.map(prunedText).join('\n') || `${baseBackupDir} has no base backup.`);
}

function prunedText({ server, baseBackups, segments, held, from }: { server: string } & PrunedBases): string {
  const removed = `${countText(baseBackups, 'base backup')} and ${countText(segments, 'segment')} removed.`;
  const reachable = from ? `Moments from ${from} on can be restored.` : 'It has no base backup.';
  return [`${server}: ${removed}`, ...held.map(heldText), reachable].join(' ');
}

/** Returns the sentence about a base backup that stays only because a restore reads it. */
export function heldText({ id, pid }: PrunedBases['held'][number]): string {
  return `Base backup ${id} stays, because process ${pid} restores from it: run backup prune --base afterwards.`;
}
