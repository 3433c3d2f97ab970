import { type Command, InvalidArgumentError, Option } from 'commander';
import { createPasswords } from '../auth/passwords.ts';
import { scopes } from '../control/entities.ts';
import { addClientCommands, addKeyCommands, addSessionCommands } from './access-commands.ts';
import { createCommand, printFields, printJson, printTable, readStdin, withInstallation } from './command.ts';
import type { Installation } from './installation.ts';
import { checkManifest, type Manifest, readManifest } from './manifest.ts';
import { addMigrateCommands } from './migrate-commands.ts';
import { OperatorError } from './operator-error.ts';
import { provision } from './provision.ts';
import { addServerCommands } from './server-commands.ts';
import { addStateCommands } from './state-commands.ts';
import { findTenant, listTenants, listUsers, showTenant, summarise } from './tenants.ts';
import { addUser, generatePassword, setDisabled, setPassword } from './users.ts';

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
  addUsers(tenant.command('user').description('the people of a tenant'));
  addKeyCommands(tenant.command('key').description('what access tokens are signed with'));
  addSessionCommands(tenant.command('session').description('open logins'));
  addClientCommands(tenant.command('client').description('old programs with legacy tokens'));
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

interface UserOptions extends Json {
  firstName: string;
  lastName: string;
  role: string;
  scope: (typeof scopes)[number];
  entity?: number;
  passwordStdin?: boolean;
}

function addUsers(user: Command): void {
  user
    .command('add')
    .description('add a user; the password is generated and shown once')
    .argument('<slug>')
    .argument('<email>')
    .option('--first-name <name>', 'first name', 'New')
    .option('--last-name <name>', 'last name', 'User')
    .option('--role <role>', 'role of the tenant', 'Member')
    .addOption(new Option('--scope <scope>', 'data of the own entity, or all').choices(scopes).default('Self'))
    .option('--entity <id>', 'entity that the user belongs to', positive)
    .option('--password-stdin', 'read the password from stdin instead of generating one')
    .option('--json', 'one JSON document on stdout')
    .action(
      withInstallation(async (installation, slug: string, email: string, options: UserOptions) => {
        const password = options.passwordStdin ? await readStdin() : generatePassword();
        const { firstName, lastName, role, scope, entity } = options;
        const owner = await findTenant(installation, slug);
        const entityId = entity ?? null;
        const added = await addUser(installation, createPasswords(), {
          tenant: owner,
          email,
          firstName,
          lastName,
          role,
          scope,
          entityId,
          password,
        });
        printLogin({ guid: added.guid, email: added.email, role, scope, entityId }, password, options);
      }),
    );
  user
    .command('list')
    .description('the people of a tenant')
    .argument('<slug>')
    .option('--json', 'one JSON document on stdout')
    .action(
      withInstallation(async (installation, slug: string, { json }: Json) => {
        const users = await listUsers(installation, slug);
        if (json) printJson(users);
        else printTable(users, 'No users.');
      }),
    );
  addStateCommand(user, 'disable', 'shut a user out and end all their sessions');
  addStateCommand(user, 'enable', 'let a disabled user in again');
  user
    .command('password')
    .description('set a new password and end all sessions of the user; it is generated and shown once')
    .argument('<slug>')
    .argument('<email>')
    .option('--password-stdin', 'read the password from stdin instead of generating one')
    .option('--json', 'one JSON document on stdout')
    .action(
      withInstallation(async (installation: Installation, slug: string, email: string, options: UserOptions) => {
        const password = options.passwordStdin ? await readStdin() : generatePassword();
        const changed = await setPassword(installation, createPasswords(), slug, email, password);
        printLogin({ guid: changed.guid, email: changed.email }, password, options);
      }),
    );
}

function addStateCommand(user: Command, name: 'disable' | 'enable', description: string): void {
  user
    .command(name)
    .description(description)
    .argument('<slug>')
    .argument('<email>')
    .option('--json', 'one JSON document on stdout')
    .action(
      withInstallation(async (installation, slug: string, email: string, { json }: Json) => {
        const changed = await setDisabled(installation, slug, email, name === 'disable');
        if (json) printJson({ guid: changed.guid, email: changed.email, state: `${name}d` });
        else process.stdout.write(`${changed.email} is ${name}d.\n`);
      }),
    );
}

/** A password that was generated is shown this once; one that came from stdin is not repeated. */
function printLogin(fields: Record<string, unknown>, password: string, { json, passwordStdin }: UserOptions): void {
  const all = passwordStdin ? fields : { ...fields, password };
  if (json) printJson(all);
  else printFields(all);
}

function collect(value: string, previous: string[]): string[] {
  return [...previous, value];
}

function positive(value: string): number {
  if (!/^[1-9]\d{0,8}$/.test(value)) throw new InvalidArgumentError('a whole number above 0 is needed');
  return Number(value);
}
