import type { Command } from 'commander';
import { disableKey, listKeys, rotateKey } from '../tenants/keys.ts';
import { withInstallation } from './command.ts';
import { jsonOption, type OutputOptions, printResult } from './output.ts';
import { tableText } from './text-table.ts';

/** Adds the commands of `key`: the keys that sign a tenant's access tokens. */
export function addKeyCommands(key: Command): void {
  key
    .command('list')
    .description('list the signing keys of a tenant')
    .argument('<slug>')
    .option(...jsonOption)
    .action(
      withInstallation(async (installation, slug: string, options: OutputOptions) => {
        const keys = await listKeys(installation, slug);
        printResult(options, keys, () => tableText(keys, `${slug} has no signing key.`));
      }),
    );
  key
    .command('rotate')
    .description('sign with a new key; tokens signed with the previous key stay valid until they expire')
    .argument('<slug>')
    .option(...jsonOption)
    .action(
      withInstallation(async (installation, slug: string, options: OutputOptions) => {
        const kid = await rotateKey(installation, slug);
        printResult(options, { kid }, () => `${slug} now signs with key ${kid}.`);
      }),
    );
  key
    .command('disable')
    .description('refuse every token of a key at once; if the key is the active one, a new key replaces it')
    .argument('<slug>')
    .argument('<kid>')
    .option(...jsonOption)
    .action(
      withInstallation(async (installation, slug: string, kid: string, options: OutputOptions) => {
        await disableKey(installation, slug, kid);
        printResult(options, { kid, status: 'disabled' }, () => `Key ${kid} is disabled: its tokens are refused.`);
      }),
    );
}
