import type { Command } from 'commander';
import { listTenants, showTenant } from '../tenants/tenants.ts';
import { addClientCommands, addKeyCommands, addSessionCommands } from './access-commands.ts';
import { createCommand, printFields, printJson, printTable, withInstallation } from './command.ts';
import { addDoctorCommand } from './doctor-command.ts';
import { addMigrateCommands } from './migrate-commands.ts';
import { addPoolCommands } from './pool-commands.ts';
import { addProvisionCommand } from './provision-command.ts';
import { addServerCommands } from './server-commands.ts';
import { addStateCommands } from './state-commands.ts';
import { addUserCommands } from './user-commands.ts';

interface Json {
  json?: boolean;
}

/** `npm run -s tenant -- …`: the tenants and their people. */
export function tenantCommand(): Command {
  const tenant = createCommand('npm run -s tenant --').description(
    'Tenants: make them, look at them, keep their databases at head',
  );
  addProvisionCommand(tenant);
  addList(tenant);
  addMigrateCommands(tenant);
  addStateCommands(tenant);
  addPoolCommands(tenant.command('pool').description('databases that wait for new tenants'));
  addServerCommands(tenant.command('server').description('PostgreSQL servers that tenants are placed on'));
  addUserCommands(tenant.command('user').description('the people of a tenant'));
  addKeyCommands(tenant.command('key').description('what access tokens are signed with'));
  addSessionCommands(tenant.command('session').description('open logins'));
  addClientCommands(tenant.command('client').description('old programs with legacy tokens'));
  addDoctorCommand(tenant);
  return tenant;
}

function addList(tenant: Command): void {
  tenant
    .command('list')
    .description('all tenants')
    .option('--json', 'one JSON document on stdout')
    .action(
      withInstallation(async (installation, { json }: Json) => {
        const tenants = await listTenants(installation);
        if (json) printJson(tenants);
        else
          printTable(
            tenants.map(({ slug, name, status, schemaVersion, server, guid }) => ({
              slug,
              name,
              status,
              schemaVersion,
              server,
              guid,
            })),
            'No tenants yet: npm run -s tenant -- provision --help',
          );
      }),
    );
  tenant
    .command('show')
    .description('one tenant')
    .argument('<slug>')
    .option('--json', 'one JSON document on stdout')
    .action(
      withInstallation(async (installation, slug: string, { json }: Json) => {
        const { keys, features, ...fields } = await showTenant(installation, slug);
        if (json) return printJson({ ...fields, features, keys });
        printFields({ ...fields, features: features.join(', ') || '–' });
        for (const key of keys) printFields({ 'signing key': `${key.kid}  ${key.status}  since ${key.createdAt}` });
      }),
    );
}
