import type { Command } from 'commander';
import { withInstallation, withStatements } from './command.ts';
import { jsonOption, type OutputOptions, printResult } from './output.ts';
import { printList } from './print-list.ts';

/** Adds the commands of `key`: the keys that sign a tenant's access tokens. */
export function addKeyCommands(program: Command): void {
  const key = program.command('key').description("keys that sign a tenant's access tokens");
  key
    .command('list')
    .description('list the signing keys of a tenant')
    .argument('<slug>')
    .option(...jsonOption)
    .action(
      withStatements(async (control, slug: string, options: OutputOptions) => {
        const { listKeys } = await import('../tenants/read-tenants.ts');
        const keys = await listKeys(control, slug);
        printList(options, keys, { row: key => key, name: ({ kid }) => kid, empty: `${slug} has no signing key.` });
      }),
    );
  key
    .command('rotate')
    .description('sign with a new key; tokens signed with the previous key stay valid until they expire')
    .argument('<slug>')
    .option(...jsonOption)
    .action(
      withInstallation(async (installation, slug: string, options: OutputOptions) => {
        const { rotateKey } = await import('../tenants/keys.ts');
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
        const { disableKey } = await import('../tenants/keys.ts');
        await disableKey(installation, slug, kid);
        printResult(options, { kid, status: 'disabled' }, () => `Key ${kid} is disabled: its tokens are refused.`);
      }),
    );
}
