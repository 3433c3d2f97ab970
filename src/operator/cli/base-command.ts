import type { Command } from 'commander';
import type { BaseRetention } from '../../config-values.ts';
import { withInstallation } from './command.ts';
import { jsonOption, type OutputOptions, printResult } from './output.ts';
import { parseBaseRetention } from './parse-base-retention.ts';
import { heldText } from './prune-command.ts';
import { StepSpinner } from './step-spinner.ts';
import { fieldsText } from './text-table.ts';

interface BaseOptions extends OutputOptions {
  wal?: string;
  keep?: BaseRetention;
}

/** Adds `backup base`. */
export function addBaseCommand(backup: Command): void {
  backup
    .command('base')
    .description('copy the files of a server on this machine, and archive its write-ahead log: for restore --at')
    .argument('[server]', 'name of the server (server list)', 'default')
    .option('--wal <folder>', 'folder that the server archives its write-ahead log to already')
    .option('--keep <number|time>', 'which base backups stay (default: BASE_BACKUP_KEEP)', parseBaseRetention)
    .option(...jsonOption)
    .action(
      withInstallation(async (installation, name: string, options: BaseOptions) => {
        const { readConfig } = await import('../../config.ts');
        const { makeBaseBackup } = await import('../restore/moment/base-backup.ts');
        const { baseFolder } = await import('../restore/moment/base-folder.ts');
        const { findServer } = await import('../tenants/servers.ts');
        const server = await findServer(installation, name);
        const folder = baseFolder(readConfig().baseBackupDir, name);
        const spinner = new StepSpinner();
        spinner.step(`copying the files of ${name}`);
        const { wal, keep = readConfig().baseBackupKeep } = options;
        const onProgress = (files: number): void => spinner.step(`copying the files of ${name}: ${files}`);
        const startedAt = performance.now();
        const making = makeBaseBackup(installation, server, folder, { wal, keep, onProgress });
        const { base, pruned } = await making.finally(spinner.end);
        const { id, startedAt: from, finishedAt, bytes, walArchive } = base;
        const seconds = Math.round((performance.now() - startedAt) / 10) / 100;
        const document = {
          server: name,
          id,
          folder: folder.base(id),
          startedAt: from,
          finishedAt,
          bytes,
          walArchive,
          held: pruned.held.map(each => each.id),
          seconds,
        };
        printResult(options, document, () =>
          [
            fieldsText(document),
            '',
            `From ${finishedAt} on, each tenant of ${name} can be restored to any moment.`,
            ...pruned.held.map(heldText),
          ].join('\n'),
        );
      }),
    );
}
