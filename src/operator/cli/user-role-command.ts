import type { Command } from 'commander';
import { withInstallation } from './command.ts';
import { jsonOption, type OutputOptions, printResult } from './output.ts';
import { fieldsText } from './text-table.ts';

/** Adds `user role`. A user has exactly one role, so another role takes the place of the one before. */
export function addUserRole(user: Command): void {
  user
    .command('role')
    .description('show the role of a user and its permissions, or give the user another role')
    .argument('<slug>')
    .argument('<email>')
    .argument('[role]', 'the new role; every user has exactly one')
    .option(...jsonOption)
    .action(
      withInstallation(
        async (installation, slug: string, address: string, role: string | undefined, options: OutputOptions) => {
          const { changeUser, readUserRole } = await import('../tenants/change-user.ts');
          if (role !== undefined) await changeUser(installation, slug, address, { role });
          const { permissions, others, ...found } = await readUserRole(installation, slug, address);
          printResult(options, { ...found, permissions, others }, () =>
            fieldsText({
              ...found,
              permissions: permissions.join(' ') || '–',
              'other roles': others.join(', ') || '–',
            }),
          );
        },
      ),
    );
}
