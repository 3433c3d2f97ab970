import type { Command } from 'commander';
import { addClientCommands } from './client-commands.ts';
import { createCommand, withStatements } from './command.ts';
import { addDoctorCommand } from './doctor-command.ts';
import { addKeyCommands } from './key-commands.ts';
import { addMigrateCommand } from './migrate-command.ts';
import { jsonOption, type OutputOptions, printResult } from './output.ts';
import { addPacksCommands } from './packs-commands.ts';
import { addPoolCommands } from './pool-commands.ts';
import { addProcessesCommand } from './processes-command.ts';
import { addProvisionCommand } from './provision-command.ts';
import { addRoleCommands } from './role-commands.ts';
import { addRollbackCommand } from './rollback-command.ts';
import { addServerCommands } from './server-commands.ts';
import { addSessionCommands } from './session-commands.ts';
import { addStateCommands } from './state-commands.ts';
import { addStatusCommand } from './status-command.ts';
import { fieldsText, tableText } from './text-table.ts';
import { addUserCommands } from './user-commands.ts';

/** Builds `npm run -s tenant -- …`: every command on tenants, their users and their databases. */
export function tenantCommand(): Command {
  const tenant = createCommand('npm run -s tenant --').description('Provision, list, migrate and check tenants');
  addProvisionCommand(tenant);
  addListCommand(tenant);
  addShowCommand(tenant);
  addMigrateCommand(tenant);
  addRollbackCommand(tenant);
  addStatusCommand(tenant);
  addStateCommands(tenant);
  addPoolCommands(tenant.command('pool').description('warm databases, made ahead for new tenants'));
  addPacksCommands(tenant.command('packs').description('reference data of public standards, for tenants'));
  addServerCommands(tenant.command('server').description('PostgreSQL servers that tenants are placed on'));
  addProcessesCommand(tenant);
  addUserCommands(tenant.command('user').description('users of a tenant'));
  addRoleCommands(tenant.command('role').description('roles of a tenant: named sets of permissions'));
  addKeyCommands(tenant.command('key').description("keys that sign a tenant's access tokens"));
  addSessionCommands(tenant.command('session').description('open logins of users'));
  addClientCommands(tenant.command('client').description('programs that use legacy tokens'));
  addDoctorCommand(tenant);
  return tenant;
}

function addListCommand(tenant: Command): void {
  tenant
    .command('list')
    .description('list all tenants')
    .option(...jsonOption)
    .action(
      withStatements(async (control, options: OutputOptions) => {
        const { listTenants } = await import('../tenants/read-tenants.ts');
        const tenants = await listTenants(control);
        const rows = tenants.map(({ slug, name, status, schemaVersion, server, guid }) => ({
          slug,
          name,
          status,
          schemaVersion,
          server,
          guid,
        }));
        printResult(options, tenants, () =>
          tableText(rows, 'There is no tenant. Make one: npm run -s tenant -- provision --help'),
        );
      }),
    );
}

function addShowCommand(tenant: Command): void {
  tenant
    .command('show')
    .description('show one tenant')
    .argument('<slug>')
    .option(...jsonOption)
    .action(
      withStatements(async (control, slug: string, options: OutputOptions) => {
        const { showTenant } = await import('../tenants/read-tenants.ts');
        const { keys, features, ...fields } = await showTenant(control, slug);
        printResult(options, { ...fields, features, keys }, () =>
          [
            fieldsText({ ...fields, features: features.join(', ') || '–' }),
            ...keys.map(key => fieldsText({ 'signing key': `${key.kid}  ${key.status}  since ${key.createdAt}` })),
          ].join('\n'),
        );
      }),
    );
}
