import type { Command } from 'commander';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../operator-error.ts';
import { countText } from '../count-text.ts';
import type { PurgeRecord } from '../tenants/purge-record.ts';
import { withInstallation } from './command.ts';
import { confirmName } from './confirm-name.ts';
import { jsonOption, type OutputOptions, printResult } from './output.ts';
import { withSpinner } from './spinner.ts';

/** Adds `purge`. */
export function addPurge(program: Command): void {
  program
    .command('purge')
    .description(
      'remove a deleted tenant permanently: database, login role, keys, users, sessions; no archive can be read',
    )
    .argument('<slug>')
    .option('--yes', 'do not ask for confirmation')
    .option(...jsonOption)
    .action(
      withInstallation(async (installation, slug: string, options: OutputOptions & { yes?: boolean }) => {
        const { purgeTenant, requirePurgeable } = await import('../tenants/tenant-states.ts');
        const { findTenant } = await import('../tenants/tenants.ts');
        requirePurgeable(await findTenant(installation, slug));
        await confirmName(slug, 'and all of its data will be removed permanently', options.yes);
        const { text, signature } = await withSpinner(`purging ${slug}`, purgeTenant(installation, slug));
        const record = JSON.parse(text) as PurgeRecord;
        const result = { slug, status: 'purged', record: text, signature: signature.toString('base64') };
        printResult(options, result, () => purgeText(slug, record));
        if (record.archives.length > 0) await removeDestroyedKey(installation);
      }),
    );
}

function purgeText(slug: string, { keyFingerprint, archives }: PurgeRecord): string {
  if (archives.length === 0) return `${slug} is purged.`;
  return `${slug} is purged. The key of its archives (${keyFingerprint}) is destroyed: ${countText(archives.length, 'archive is', 'archives are')} unreadable.`;
}

/** Removes the data key of a purged tenant from the keyring of the backup target. */
async function removeDestroyedKey({ controlUrl }: Installation): Promise<void> {
  const { removeDestroyedKeys } = await import('../backup/keyring-file.ts');
  const { openTarget } = await import('../backup/targets/open-target.ts');
  const { readConfig } = await import('../../config.ts');
  try {
    await removeDestroyedKeys(controlUrl, openTarget(readConfig().backup));
  } catch (cause) {
    const remedy = 'Remove it: npx backoffice backup run --all';
    throw new OperatorError(`The key is still in the keyring of the backup target. ${remedy}`, { cause });
  }
}
