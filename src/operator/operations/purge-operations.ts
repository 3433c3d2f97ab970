import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../operator-error.ts';
import { countText } from '../count-text.ts';
import type { PurgeRecord } from '../tenants/purge-record.ts';
import { openBackupTarget } from './open-backup-target.ts';
import { defineOperation } from './operation.ts';
import { argument } from './operation-fields.ts';

const purge = defineOperation({
  name: 'purge',
  description:
    'remove a deleted tenant permanently: database, login role, keys, users, sessions; no archive can be read',
  fields: { slug: argument('slug') },
  examples: ['purge acme --reason "30 days after the end of the contract"'],
  access: 'installation',
  effect: 'destroys',
  async plan({ slug }, { installation }) {
    const { planPurge } = await import('../tenants/plan-purge.ts');
    const plan = await planPurge(installation, slug);
    return {
      document: { ...plan, state: 'planned' },
      text: () =>
        `${slug} would be removed permanently: its database ${plan.database} on ${plan.server}, ` +
        `${countText(plan.users, 'user')}, and the key of ${countText(plan.archives, 'archive')}.`,
      confirm: { name: slug, consequence: 'and all of its data will be removed permanently' },
    };
  },
  async run({ slug }, { installation, output, progress }) {
    const { purgeTenant } = await import('../tenants/tenant-states.ts');
    progress.step(`purging ${slug}`);
    const { text, signature } = await purgeTenant(installation, slug);
    const record = JSON.parse(text) as PurgeRecord;
    const result = { slug, status: 'purged', record: text, signature: signature.toString('base64') };
    output.result(result, () => purgeText(slug, record));
    if (record.archives.length > 0) await removeDestroyedKey(installation);
  },
});

export const operations = [purge];

function purgeText(slug: string, { keyFingerprint, archives }: PurgeRecord): string {
  if (archives.length === 0) return `${slug} is purged.`;
  const lost = countText(archives.length, 'archive is', 'archives are');
  return `${slug} is purged. The key of its archives (${keyFingerprint}) is destroyed: ${lost} unreadable.`;
}

/** Removes the data key of a purged tenant from the backup target. */
async function removeDestroyedKey({ controlUrl }: Installation): Promise<void> {
  const { requireOwner } = await import('../backup/target-owner.ts');
  const { removePurgedKeys } = await import('../backup/target-keys.ts');
  const { withConnection } = await import('../../postgres/connection.ts');
  try {
    const target = await openBackupTarget();
    await withConnection(controlUrl, async control => {
      await requireOwner(control, target);
      await removePurgedKeys(control, target);
    });
  } catch (cause) {
    const remedy = 'Remove it: npx backoffice backup run --all';
    throw new OperatorError(`The key is still in the backup target. ${remedy}`, { cause });
  }
}
