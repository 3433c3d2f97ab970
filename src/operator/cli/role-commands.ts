import type { Command } from 'commander';
import type { RoleSummary } from '../tenants/roles.ts';
import { withInstallation, withStatements } from './command.ts';
import { jsonOption, type OutputOptions, printResult } from './output.ts';
import { printList } from './print-list.ts';
import { fieldsText } from './text-table.ts';

/** Adds the commands of `role`: named sets of permissions of a tenant. */
export function addRoleCommands(program: Command): void {
  const role = program.command('role').description('roles of a tenant: named sets of permissions');
  role
    .command('list')
    .description('list the roles of a tenant with their permissions')
    .argument('<slug>')
    .option(...jsonOption)
    .action(
      withStatements(async (access, slug: string, options: OutputOptions) => {
        const { listRoles } = await import('../tenants/roles.ts');
        const roles = await listRoles(access, slug);
        printList(options, roles, { row: shown, name: ({ name }) => name, empty: 'No roles.' });
      }),
    );
  role
    .command('add')
    .description('add a role')
    .argument('<slug>')
    .argument('<role>')
    .argument('[permissions...]')
    .option(...jsonOption)
    .action(
      withInstallation(
        async (installation, slug: string, name: string, permissions: string[], options: OutputOptions) => {
          const { addRole } = await import('../tenants/roles.ts');
          const added = await addRole(installation, slug, name, permissions);
          printResult(options, added, () => fieldsText(shown(added)));
        },
      ),
    );
  addChangeCommand(role, 'grant', 'add permissions to a role; users have them from their next token on');
  addChangeCommand(role, 'revoke', 'remove permissions from a role; every process refuses them within a second');
  role
    .command('remove')
    .description('remove a role that no user has')
    .argument('<slug>')
    .argument('<role>')
    .option(...jsonOption)
    .action(
      withInstallation(async (installation, slug: string, name: string, options: OutputOptions) => {
        const { removeRole } = await import('../tenants/roles.ts');
        await removeRole(installation, slug, name);
        printResult(options, { name, state: 'removed' }, () => `Role ${name} is removed.`);
      }),
    );
}

function addChangeCommand(role: Command, change: 'grant' | 'revoke', description: string): void {
  role
    .command(change)
    .description(description)
    .argument('<slug>')
    .argument('<role>')
    .argument('<permissions...>')
    .option(...jsonOption)
    .action(
      withInstallation(
        async (installation, slug: string, name: string, permissions: string[], options: OutputOptions) => {
          const { changePermissions } = await import('../tenants/roles.ts');
          const changed = await changePermissions(installation, slug, name, permissions, change);
          printResult(options, changed, () => fieldsText(shown(changed)));
        },
      ),
    );
}

function shown({ permissions, ...role }: RoleSummary) {
  return { ...role, permissions: permissions.join(' ') || '–' };
}
