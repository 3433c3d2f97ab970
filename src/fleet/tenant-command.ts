import type { Command } from 'commander';
import { createPasswords } from '../auth/passwords.ts';
import { addClientCommands, addKeyCommands, addSessionCommands } from './access-commands.ts';
import { createCommand, printFields, printJson, printTable, withInstallation } from './command.ts';
import { addDoctorCommand } from './doctor-command.ts';
import { checkManifest, type Manifest, readManifest } from './manifest.ts';
import { addMigrateCommands } from './migrate-commands.ts';
import { OperatorError } from './operator-error.ts';
import { provision } from './provision.ts';
import { addServerCommands } from './server-commands.ts';
import { addStateCommands } from './state-commands.ts';
import { listTenants, showTenant, summarise } from './tenants.ts';
import { addUserCommands } from './user-commands.ts';

interface Json {
  json?: boolean;
}

/** `npm run -s tenant -- …`: the tenants and their people. */
export function tenantCommand(): Command {
  const tenant = createCommand('tenant').description('Tenants: make them, look at them, keep their databases at head');
  addProvision(tenant);
  addList(tenant);
  addMigrateCommands(tenant);
  addStateCommands(tenant);
  addServerCommands(tenant.command('server').description('PostgreSQL servers that tenants are placed on'));
  addUserCommands(tenant.command('user').description('the people of a tenant'));
  addKeyCommands(tenant.command('key').description('what access tokens are signed with'));
  addSessionCommands(tenant.command('session').description('open logins'));
  addClientCommands(tenant.command('client').description('old programs with legacy tokens'));
  addDoctorCommand(tenant);
  return tenant;
}

interface ProvisionOptions extends Json {
  file?: string;
  name?: string;
  appId?: string;
  feature: string[];
  server?: string;
  adminEmail?: string;
}

function addProvision(tenant: Command): void {
  tenant
    .command('provision')
    .description('make a tenant: its database, roles, signing key and first administrator')
    .argument('[slug]', 'short name, in lower case')
    .option('--file <manifest>', 'take everything from a manifest, such as tenants/demo.json')
    .option('--name <name>', 'name of the company')
    .option('--app-id <id>', 'application identifier (the slug)')
    .option('--feature <feature>', 'a feature to enable; may be repeated', collect, [])
    .option('--server <server>', 'PostgreSQL server to place it on (the one with the most room)')
    .option('--admin-email <address>', 'the first administrator, whose password is generated and shown once')
    .option('--json', 'one JSON document on stdout')
    .action(
      withInstallation(async (installation, slug: string | undefined, options: ProvisionOptions) => {
        const manifest = options.file ? await readManifest(options.file) : manifestOf(slug, options);
        const { tenant, created, logins } = await provision(installation, createPasswords(), manifest);
        if (!created && !options.file) {
          throw new OperatorError(
            `there is a tenant ${tenant.slug} already, ${tenant.status}; see: npm run -s tenant -- show ${tenant.slug}`,
          );
        }
        const [admin, ...users] = logins;
        if (options.json) {
          printJson({ ...summarise(tenant), created, ...(admin ? { admin } : {}), ...(users.length ? { users } : {}) });
        } else if (created) {
          process.stdout.write(`Provisioned ${tenant.slug}. Passwords are shown this once.\n\n`);
          printFields(summarise(tenant) as never);
          for (const { email, password } of logins) printFields({ email, password });
        } else {
          process.stdout.write(`${tenant.slug} is there already: nothing was changed.\n`);
        }
      }),
    );
}

function manifestOf(
  slug: string | undefined,
  { name, appId, feature, server, adminEmail }: ProvisionOptions,
): Manifest {
  if (!slug || !name || !adminEmail) {
    throw new OperatorError('a slug, --name and --admin-email are needed, or --file', { usage: true });
  }
  return checkManifest({ slug, name, appId, features: feature, server, admin: { email: adminEmail } }, 'the arguments');
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

function collect(value: string, previous: string[]): string[] {
  return [...previous, value];
}
