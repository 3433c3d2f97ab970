/*
 * A script that runs a restore, and kills its own process before one of its steps, as kill -9
 * does, or stops it, as kill -STOP does:
 *
 *   node test/support/killed-restore.ts beside|swap|back|lost|purge SLUG STEP [SIGKILL|SIGSTOP]
 *   node test/support/killed-restore.ts swap|back SLUG STEP SIGKILL|SIGSTOP DATABASE
 *   node test/support/killed-restore.ts control ARCHIVE STEP
 *
 * `beside` and `lost` restore the newest archive of the tenant. No process outlives it, as one
 * does the command line.
 */
import { argv } from 'node:process';
import { openInstallation } from '../../src/control/installation.ts';
import { readConfig } from '../../src/lib/config/config.ts';
import { findArchive, restoreArchive } from '../../src/operator/backup/restore/restore-archive.ts';
import {
  restoreDatabase,
  switchDatabase,
} from '../../src/operator/databases/verbs/restored-databases.ts';
import { purgeTenant } from '../../src/operator/lifecycle/purge-tenant.ts';
import {
  archivedControl,
  findNamedControl,
  findNewestControl,
  listRestorer,
  openControlAccess,
  openNamedControl,
} from '../../src/operator/recovery/control-archives.ts';
import { restoreControl } from '../../src/operator/recovery/restore-control.ts';
import { findTenant } from '../../src/operator/registry/tenants.ts';

const [kind, subject = '', lastStep, signal = 'SIGKILL', database] = argv.slice(2);
const onStep = (step: string): void => {
  if (step === lastStep) process.kill(process.pid, signal);
};
const observers = { onStep: (_: string, step: string) => onStep(step) };

const config = readConfig();
const installation = await openInstallation(config);
if (kind === 'control') {
  const access = await openControlAccess(installation, {
    withoutMac: false,
    maxBytes: undefined,
  });
  const named = await findNamedControl(access, subject);
  const opened = await openNamedControl(access, named);
  const source = archivedControl(opened);
  const { newest } = await findNewestControl(access, named.installation);
  const later = newest && newest.time > source.at ? archivedControl(newest) : undefined;
  const restoreList = listRestorer(access, named.installation, source.at, opened);
  await restoreControl(installation, { source, later, restoreList, isKeyLost: false }, onStep);
  onStep('end');
} else if (kind === 'beside' || kind === 'lost') {
  const source = await findTenant(installation, subject);
  const found = await findArchive(installation, source, undefined);
  const goal = kind === 'lost' ? 'replace' : 'place';
  await restoreArchive(installation, source, found, { destination: '', warn: () => {} }, data =>
    restoreDatabase(installation, subject, data, goal, observers),
  );
} else if (kind === 'purge') {
  await purgeTenant(installation, subject, { keepsArchives: false, onStep });
} else {
  const request = {
    kind: kind === 'back' ? 'back' : 'swap',
    database,
    keepSeconds: 3_600,
  } as const;
  await switchDatabase(installation, subject, request, observers);
}
await installation.close();
