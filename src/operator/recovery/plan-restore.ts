import type { Tenant } from '../../control/control-entities.ts';
import type { Installation } from '../../installation.ts';
import { openBackupTarget } from '../archives/open-backup-target.ts';
import type { Plan } from '../command/operation.ts';
import { tableText } from '../command/text-table.ts';
import { findTenant } from '../tenants/tenants.ts';
import { type RestoredMoment, requireOneChoice } from './restore-data.ts';

/** Returns which data of a tenant a restore would take. Neither checks an archive nor recovers a server. */
async function describeData(
  installation: Installation,
  source: Tenant,
  { at, archive: id, from }: RestoredMoment,
): Promise<string> {
  if (at !== undefined) {
    const { requireMoment } = await import('./restore-to-moment.ts');
    requireMoment(source, at);
    return `the moment ${at}, by RECOVERY_COMMAND`;
  }
  if (from !== undefined) return 'a recovered server';
  const { findArchive } = await import('./restore-archive.ts');
  const { archive } = await findArchive(installation, source, await openBackupTarget(), id);
  return `${archive.file} of ${archive.snapshotAt.toISOString()}`;
}

/** Returns what `restore` of one tenant would do, and changes nothing. */
export async function planRestoreOf(installation: Installation, slug: string, moment: RestoredMoment): Promise<Plan> {
  requireOneChoice(moment);
  const source = await findTenant(installation, slug);
  if (moment.lost) {
    const { requireLost } = await import('../databases/restored-databases.ts');
    await requireLost(installation, source);
  }
  const restoredFrom = await describeData(installation, source, moment);
  const place = moment.lost ? 'in place of its lost database' : 'beside its present data';
  return {
    document: { slug, restoredFrom, lost: moment.lost === true, state: 'planned' },
    text: () => `${slug} would get data ${place}, from ${restoredFrom}.`,
  };
}

/** Returns what `restore --lost` of many tenants would do, and changes nothing. */
export async function planLostFleet(installation: Installation, server: string | undefined): Promise<Plan> {
  const { planLost } = await import('./restore-lost-tenants.ts');
  const planned = await planLost(installation, await openBackupTarget(), server);
  return {
    document: planned,
    text: () => tableText(planned, 'No database is lost.'),
    isLines: true,
    hasFailed: planned.some(({ file }) => file === null),
  };
}
