import type { ConfigAccess } from '../../control/installation.ts';
import type { PurgedArchives } from '../backup/purged-archives.ts';
import type { Target } from '../backup/target/target.ts';
import { defineOperation } from '../command/operation.ts';
import { argument, flag } from '../command/operation-fields.ts';
import { countText } from '../command/texts.ts';
import type { LeftRole } from '../databases/protocol/drop-database.ts';

/** The purge that removes the archives of a tenant, too. */
const purge = defineOperation({
  name: 'purge',
  help: {
    description:
      'remove a deleted tenant permanently: databases, login roles, keys, users, sessions, ' +
      'and its archives',
    examples: ['purge acme --reason "30 days after the end of the contract"'],
    more: `Databases and rows go first, then the archives. What the target refuses to remove is named, and doctor lists it until it is
gone; each run goes on removing it. Run the purge again after an interruption of any kind. Copies that are elsewhere are not
removed: those that somebody has made of the target, and archives of the control database, which have the names of the people
until BACKUP_KEEP removes them.`,
    exitCodes:
      '0 when nothing of the tenant is left, 1 when the target still has archives of it, 2 ' +
      'for wrong usage',
  },
  fields: {
    slug: argument('slug'),
    keepArchives: flag(
      'its archives stay in the target, and whoever has the identity can read them',
      {
        label: 'Keep its archives',
        isAdvanced: true,
      },
    ),
  },
  effect: 'destroys',
  async plan({ slug, keepArchives }, { installation }) {
    const { planPurge } = await import('./purge-tenant.ts');
    const plan = await planPurge(installation, slug);
    const holds = plan.holds.length > 0 ? ` With it: ${plan.holds.join(', ')}.` : '';
    const archives = keepArchives
      ? `Its archives would stay (${countText(plan.archives, 'archive')}).`
      : `Its folder in the target would be removed (${countText(plan.archives, 'archive')}).`;

    return {
      document: { ...plan, keepsArchives: keepArchives, state: 'planned' },
      text: () =>
        plan.database === null
          ? `${slug} is removed. What the target still has of its archives would be removed.`
          : `${slug} would be removed permanently: its database ${plan.database} on ${plan.server}, ` +
            `${countText(plan.users, 'user')}.${holds} ${archives}`,
      confirm: { name: slug, consequence: 'and all of its data will be removed permanently' },
    };
  },
  async run({ slug, keepArchives }, { installation, output, progress }) {
    const { findLeftArchives, purgeTenant } = await import('./purge-tenant.ts');
    const { removePurgedArchives } = await import('../backup/purged-archives.ts');
    progress.step(`purging ${slug}`);

    const sayLeft = ({ role, server, databases }: LeftRole): void =>
      output.warn(
        `Login role ${role} on server ${server} is left, without a password: somebody has ` +
          `granted it rights in ${databases.join(', ') || 'no database'}. Revoke them, and drop ` +
          'it: bin/backoffice doctor says how',
      );
    const left = await findLeftArchives(installation, slug);
    const purged =
      left.length > 0
        ? left
        : [await purgeTenant(installation, slug, { keepsArchives: keepArchives, onLeft: sayLeft })];
    const target = await openConfiguredTarget(installation);
    const outcomes: PurgedArchives[] = [];
    for (const { guid } of purged) {
      const isKept = keepArchives && left.length === 0;
      outcomes.push(
        isKept ? keptArchives(target) : await removePurgedArchives(installation, target, guid),
      );
    }

    output.result({ slug, status: 'purged', archives: outcomes }, () =>
      outcomes.map(each => purgeText(slug, each)).join('\n'),
    );
    return outcomes.every(({ state }) => state !== 'left');
  },
});

export const operations = [purge];

function keptArchives(target: Target | undefined): PurgedArchives {
  return { state: 'kept', target: target?.description ?? null, removed: 0, left: [], error: null };
}

/**
 * @returns undefined when this installation has no target
 * @throws {OperatorError} when its setting is wrong
 */
async function openConfiguredTarget(access: ConfigAccess): Promise<Target | undefined> {
  const { openBackupTarget } = await import('../backup/target/open-target.ts');

  return access.config.backup.target === undefined ? undefined : openBackupTarget(access);
}

const maxNamed = 10;

function purgeText(slug: string, { state, target, removed, left, error }: PurgedArchives): string {
  if (state === 'kept') {
    return `${slug} is purged. Its archives stay in ${target ?? 'their target'}, as you wanted.`;
  }
  if (state === 'removed' && removed === 0) {
    return `${slug} is purged. ${target ? `${target} has` : 'There was'} no archive of it.`;
  }
  if (state === 'removed') {
    return `${slug} is purged, and so is what ${target} had of it: ${countText(removed, 'archive')}.`;
  }

  const names =
    left.slice(0, maxNamed).join(', ') +
    (left.length > maxNamed ? ` and ${left.length - maxNamed} more` : '');
  return (
    `${slug} is purged, but its archives are not all removed (${error}): ` +
    `${names || `nobody knows what ${target ?? 'the target'} still has`}. Each run goes on ` +
    `removing them, and doctor lists them. Or try again: bin/backoffice purge ${slug}`
  );
}
