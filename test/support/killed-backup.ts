/*
 * A script that runs a command of backups with small archives, and kills its own process at a
 * call of its target, as kill -9 does:
 *
 *   node test/support/killed-backup.ts run|prune|purge=GUID before|after write|remove|erase PART
 *
 * `before`, `after`: the call has any effect; PART: of the name of its object. No process
 * outlives it, as one does the command line.
 */
import { argv } from 'node:process';
import { openInstallation } from '../../src/control/installation.ts';
import { readConfig } from '../../src/lib/config/config.ts';
import { pruneArchives } from '../../src/operator/backup/prune-archives.ts';
import { removePurgedArchives } from '../../src/operator/backup/purged-archives.ts';
import { openBackupTarget } from '../../src/operator/backup/target/open-target.ts';
import { runSmall } from './small-archives.ts';

const [command = '', moment, call = '', part = ''] = argv.slice(2);
const config = readConfig();
const installation = await openInstallation(config);
const target = await openBackupTarget(installation);

const dying = new Proxy(target, {
  get: (object, name) => {
    const value = Reflect.get(object, name);
    if (typeof value !== 'function') return value;
    if (name !== call) return value.bind(object);

    return async (subject: string, ...rest: unknown[]) => {
      const dies = subject.includes(part);
      if (dies && moment === 'before') process.kill(process.pid, 'SIGKILL');
      const result = await value.call(object, subject, ...rest);
      if (dies) process.kill(process.pid, 'SIGKILL');
      return result;
    };
  },
});

if (command === 'run') {
  await runSmall(installation, dying, { keep: config.backup.keep });
} else if (command === 'prune') {
  await pruneArchives(installation, dying, config.backup.keep);
} else {
  await removePurgedArchives(installation, dying, command.split('=')[1] ?? '');
}
await installation.close();
