import type { Installation } from '../../installation.ts';
import { openBackupTarget } from '../archives/open-backup-target.ts';
import type { BackupTarget } from '../archives/targets/backup-target.ts';
import type { Context } from '../command/operation.ts';
import { hasFailed, reportOutcomes } from '../command/run-fleet.ts';
import { countText } from '../command/texts.ts';
import type { LostTenant } from './restore-lost-tenants.ts';

interface Reporting extends Pick<Context, 'output' | 'progress' | 'signal' | 'trace'> {
  readonly installation: Installation;
}

/** Restores the lost databases of many tenants, and prints what becomes of each. */
export async function restoreEach(
  { installation, ...context }: Reporting,
  target: BackupTarget,
  options: { concurrency: number; server?: string | undefined },
): Promise<LostTenant[]> {
  const { restoreLostTenants } = await import('./restore-lost-tenants.ts');
  return reportOutcomes(context, { hasFailed, text: outcomeText }, observers =>
    restoreLostTenants(installation, target, options, observers),
  );
}

/** Runs `restore --lost` of every tenant, or of those of a server. @returns false when one has failed */
export async function restoreLostFleet(
  { server, concurrency }: { readonly server: string | undefined; readonly concurrency: number },
  context: Reporting,
): Promise<boolean> {
  const startedAt = performance.now();
  const tenants = await restoreEach(context, await openBackupTarget(), { concurrency, server });
  const failed = tenants.filter(hasFailed).length;
  const seconds = Math.round((performance.now() - startedAt) / 10) / 100;
  const restored = tenants.length - failed;
  const scope = server === undefined ? '--all' : `--server ${server}`;
  context.output.part({ tenants: tenants.length, restored, failed, seconds }, () =>
    tenants.length === 0
      ? 'No database is lost.'
      : `${countText(restored, 'tenant')} restored, ${failed} failed, in ${seconds} s.` +
        (failed > 0 ? ` Run it again for those that failed: npx backoffice restore --lost ${scope}` : ''),
  );
  return failed === 0;
}

function outcomeText({ slug, state, snapshotAt, ms, error }: LostTenant): string {
  return state === 'restored'
    ? `${slug}: restored, its data is of ${snapshotAt} (${ms} ms)`
    : `${slug}: failed: ${error}`;
}
