import type { Command } from 'commander';
import { countText } from '../count-text.ts';
import type { UserRemoval } from '../tenants/remove-user.ts';
import { withInstallation } from './command.ts';
import { confirmName } from './confirm-name.ts';
import { dryRunOption, jsonOption, type OutputOptions, printResult } from './output.ts';

interface RemoveOptions extends OutputOptions {
  dryRun?: boolean;
  yes?: boolean;
}

/** Adds `user remove`. */
export function addRemoveUser(user: Command): void {
  user
    .command('remove')
    .description('remove a user with all sessions and legacy clients; to refuse the logins only: user disable')
    .argument('<slug>')
    .argument('<email>')
    .option(...dryRunOption)
    .option('--yes', 'do not ask for confirmation')
    .option(...jsonOption)
    .action(
      withInstallation(async (installation, slug: string, address: string, options: RemoveOptions) => {
        const { planUserRemoval, removeUser } = await import('../tenants/remove-user.ts');
        const plan = await planUserRemoval(installation, slug, address);
        if (options.dryRun) {
          printResult(
            options,
            { ...plan, state: 'planned' },
            () => `${plan.email} would be removed, ${lossText(plan)}.`,
          );
          return;
        }
        await confirmName(plan.email, `will be removed from ${slug}, ${lossText(plan)}`, options.yes, 'address');
        const removed = await removeUser(installation, slug, address);
        const text = `${removed.email} is removed, ${lossText(removed)}.`;
        printResult(options, { ...removed, state: 'removed' }, () => text);
      }),
    );
}

function lossText({ role, sessions, clients }: UserRemoval): string {
  return `with the role ${role}, ${countText(sessions, 'open session')} and ${countText(clients, 'legacy client')}`;
}
