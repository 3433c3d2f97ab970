/*
 * A script that runs a restore, and kills its own process before one of its steps, as kill -9 does, or stops it, as
 * kill -STOP does:
 *
 *   node test/support/killed-restore.ts swap|back|guarded-swap|lost SLUG STEP [SIGKILL|SIGSTOP]
 *   node test/support/killed-restore.ts side|purge SLUG STEP [SIGKILL|SIGSTOP]
 *   node test/support/killed-restore.ts control ARCHIVE STEP
 *
 * `side` restores the newest archive of the tenant as SLUG-side. `guarded-swap` has the process that outlives it, as the
 * command line has.
 */
import { argv } from 'node:process';
import { readConfig } from '../../src/config.ts';
import { openInstallation } from '../../src/installation.ts';
import { openTarget } from '../../src/operator/backup/targets/open-target.ts';
import { createFenceGuard } from '../../src/operator/move/fence-guard.ts';
import { openControlArchives } from '../../src/operator/restore/control/control-archive.ts';
import { archivedControl } from '../../src/operator/restore/control/control-source.ts';
import { restoreControl } from '../../src/operator/restore/control/restore-control.ts';
import { restoreLostTenant } from '../../src/operator/restore/lost/restore-lost-tenant.ts';
import { restoreArchive } from '../../src/operator/restore/restore-archive.ts';
import { createSideTenant } from '../../src/operator/restore/side-tenant.ts';
import { swapTenants } from '../../src/operator/restore/swap/swap.ts';
import { purgeTenant } from '../../src/operator/tenants/tenant-states.ts';
import { findTenant } from '../../src/operator/tenants/tenants.ts';

const [kind, subject = '', lastStep, signal = 'SIGKILL'] = argv.slice(2);
const onStep = (step: string): void => {
  if (step === lastStep) process.kill(process.pid, signal);
};

const config = readConfig();
const installation = await openInstallation(config);
if (kind === 'control') {
  const target = openTarget(config.backup);
  const access = await openControlArchives(target, installation.secrets);
  await restoreControl(installation, access, await archivedControl(access, subject), onStep);
  onStep('end');
} else if (kind === 'lost') {
  const source = await findTenant(installation, subject);
  const options = { target: openTarget(config.backup), destination: '--lost' };
  await restoreArchive(installation, source, options, data => restoreLostTenant(installation, subject, data, onStep));
} else if (kind === 'side') {
  const source = await findTenant(installation, subject);
  const slug = `${subject}-side`;
  const options = { target: openTarget(config.backup), destination: `--to ${slug}` };
  await restoreArchive(installation, source, options, data =>
    createSideTenant(installation, source, slug, data, onStep),
  );
} else if (kind === 'purge') {
  await purgeTenant(installation, subject, onStep);
} else {
  const guard = createFenceGuard('swap');
  await swapTenants(installation, subject, kind !== 'back', { onStep, ...(kind === 'guarded-swap' && { guard }) });
}
await installation.close();
