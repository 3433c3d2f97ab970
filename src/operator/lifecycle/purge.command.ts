import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../log/operator-error.ts';
import { openBackupTarget } from '../archives/open-backup-target.ts';
import { defineOperation } from '../command/operation.ts';
import { argument, flag } from '../command/operation-fields.ts';
import { countText, errorText } from '../command/texts.ts';
import type { LeftRole } from '../databases/drop-database.ts';
import type { PurgeRecord } from './purge-record.ts';

const purge = defineOperation({
  name: 'purge',
  description:
    'remove a deleted tenant permanently: database, login role, keys, users, sessions; no archive can be read',
  fields: {
    slug: argument('slug'),
    lostTargets: flag('other backup targets that have its archives do not exist any more: the record names them'),
  },
  examples: ['purge acme --reason "30 days after the end of the contract"'],
  effect: 'destroys',
  async plan({ slug }, { installation }) {
    const { planPurge } = await import('./purge-tenant.ts');
    const plan = await planPurge(installation, slug);
    return {
      document: { ...plan, state: 'planned' },
      text: () =>
        plan.database === null
          ? `${slug} is removed. The key of ${countText(plan.archives, 'archive')} would be removed from the backup target.`
          : `${slug} would be removed permanently: its database ${plan.database} on ${plan.server}, ` +
            `${countText(plan.users, 'user')}, and the key of ${countText(plan.archives, 'archive')}.${
              plan.holds.length > 0 ? ` With it: ${plan.holds.join(', ')}.` : ''
            }`,
      confirm: { name: slug, consequence: 'and all of its data will be removed permanently' },
    };
  },
  async run({ slug, lostTargets }, { installation, output, progress }) {
    const { purgeTenant, endPurge, findUnendedPurge } = await import('./purge-tenant.ts');
    progress.step(`purging ${slug}`);
    const sayLeft = ({ role, server, databases }: LeftRole) =>
      output.warn(
        `Login role ${role} on server ${server} is left, without a password: somebody has granted it rights in ` +
          `${databases.join(', ') || 'no database'}. Revoke them, and drop it: bin/backoffice doctor says how`,
      );
    const purged =
      (await findUnendedPurge(installation, slug)) ?? (await purgeTenant(installation, slug, undefined, sayLeft));
    const { text, signature } =
      'text' in purged
        ? purged
        : await endPurge(installation, purged, () => removeKey(installation, purged.record.tenant), lostTargets);
    const record = JSON.parse(text) as PurgeRecord;
    const result = { slug, status: 'purged', record: text, signature: signature.toString('base64') };
    output.result(result, () => purgeText(slug, record));
  },
});

export const operations = [purge];

function purgeText(slug: string, { keyFingerprint, archives, keyRemovedFrom, keyLeftIn }: PurgeRecord): string {
  if (archives.length === 0) return `${slug} is purged.`;
  if (keyLeftIn.length > 0)
    return (
      `${slug} is purged. The key of its archives (${keyFingerprint}) is removed from ${keyRemovedFrom.join(' and ')}` +
      `. ${keyLeftIn.join(' and ')} may still have it: with the master key, its archives there can be read.`
    );
  const lost = countText(archives.length, 'archive is', 'archives are');
  return `${slug} is purged. The key of its archives (${keyFingerprint}) is destroyed: ${lost} unreadable.`;
}

/** Removes the data key of a purged tenant from the backup target, whose description it returns. */
async function removeKey(
  { controlUrl, secrets }: Installation,
  { guid, slug }: PurgeRecord['tenant'],
): Promise<string> {
  const { requireOwner } = await import('../archives/target-owner.ts');
  const { removePurgedKeys } = await import('../archives/target-keys.ts');
  const { withConnection } = await import('../../postgres/connection.ts');
  try {
    const target = await openBackupTarget();
    await withConnection(controlUrl, async control => {
      await requireOwner(control, target);
      await removePurgedKeys(control, target, secrets, guid);
    });
    return target.description;
  } catch (cause) {
    throw new OperatorError(
      `${slug} is removed, but the key of its archives is still in the backup target ` +
        `(${errorText(cause)}). End the purge: bin/backoffice purge ${slug}`,
      { cause },
    );
  }
}
