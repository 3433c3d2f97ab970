import { heldText } from './backup-text.ts';
import { defineOperation } from './operation.ts';
import { option, optionalArgument } from './operation-fields.ts';
import { parseBaseRetention } from './parse-base-retention.ts';
import { fieldsText } from './text-table.ts';

export const baseBackupOperation = defineOperation({
  name: 'backup base',
  description: 'copy the files of a server on this machine, and archive its write-ahead log: for restore --at',
  fields: {
    server: optionalArgument('server', { description: 'name of the server (server list) (default: "default")' }),
    wal: option('<folder>', 'folder that the server archives its write-ahead log to already'),
    keep: option('<number|time>', 'which base backups stay (default: BASE_BACKUP_KEEP)', {
      parse: parseBaseRetention,
    }),
  },
  examples: [
    'backup base # the server of the control database',
    'backup base second --keep 3 # three base backups of that server stay',
    'backup base --keep 7d # those stay with which every moment of the last 7 days can be restored',
  ],
  access: 'installation',
  effect: 'changes',
  isPatient: () => true,
  async run({ server: name = 'default', wal, ...values }, { installation, output, progress }) {
    const { readConfig } = await import('../../config.ts');
    const { makeBaseBackup } = await import('../restore/moment/base-backup.ts');
    const { baseFolder } = await import('../restore/moment/base-folder.ts');
    const { findServer } = await import('../tenants/servers.ts');
    const server = await findServer(installation, name);
    const folder = baseFolder(readConfig().baseBackupDir, name);
    progress.step(`copying the files of ${name}`);
    const { keep = readConfig().baseBackupKeep } = values;
    const onProgress = (files: number): void => progress.step(`copying the files of ${name}: ${files}`);
    const startedAt = performance.now();
    const { base, pruned } = await makeBaseBackup(installation, server, folder, { wal, keep, onProgress });
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
    output.result(document, () =>
      [
        fieldsText(document),
        '',
        `From ${finishedAt} on, each tenant of ${name} can be restored to any moment.`,
        ...pruned.held.map(heldText),
      ].join('\n'),
    );
  },
});
