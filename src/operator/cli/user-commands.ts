import { type Command, Option } from 'commander';
import { type Scope, scopes } from '../../control/scopes.ts';
import type { UserSummary } from '../tenants/read-tenants.ts';
import { parsePositive, withInstallation, withStatements } from './command.ts';
import { jsonOption, type OutputOptions, printResult, printText } from './output.ts';
import { printList } from './print-list.ts';
import { readSecret } from './read-secret.ts';
import { fieldsText } from './text-table.ts';
import { addRemoveUser } from './user-remove-command.ts';
import { addUserRole } from './user-role-command.ts';

interface PasswordOptions extends OutputOptions {
  passwordStdin?: boolean;
}

interface AddOptions extends PasswordOptions {
  firstName: string;
  lastName: string;
  role: string;
  scope: Scope;
  entity?: number;
}

interface ChangeOptions extends OutputOptions {
  firstName?: string;
  lastName?: string;
  role?: string;
  scope?: Scope;
  /** False: `--no-entity`. */
  entity?: number | false;
}

const passwordOption = ['--password-stdin', 'read the password from stdin instead of generating one'] as const;

/** Adds the commands of `user`: the users of a tenant. */
export function addUserCommands(program: Command): void {
  const user = program.command('user').description('users of a tenant');
  user
    .command('add')
    .description('add a user; the password is generated and shown only once')
    .argument('<slug>')
    .argument('<email>')
    .option('--first-name <name>', 'first name', 'New')
    .option('--last-name <name>', 'last name', 'User')
    .option('--role <role>', 'role of the tenant', 'Member')
    .addOption(
      new Option('--scope <scope>', 'data that the user may use: of the own entity, or all')
        .choices(scopes)
        .default('Self'),
    )
    .option('--entity <id>', 'entity that the user belongs to', parsePositive)
    .option(...passwordOption)
    .option(...jsonOption)
    .action(
      withInstallation(async (installation, slug: string, email: string, options: AddOptions) => {
        const { addUser, generatePassword } = await import('../tenants/users.ts');
        const { createPasswords } = await import('../../auth/passwords.ts');
        const { findTenant } = await import('../tenants/tenants.ts');
        const password = options.passwordStdin ? await readSecret('Password') : generatePassword();
        const { firstName, lastName, role, scope } = options;
        const tenant = await findTenant(installation, slug);
        const entityId = options.entity ?? null;
        const newUser = { tenant, email, firstName, lastName, role, scope, entityId, password };
        const added = await addUser(installation, createPasswords(), newUser);
        printLogin({ guid: added.guid, email: added.email, role, scope, entityId }, password, options);
        printText(options, () => `\nThe person logs in with the tenant ${tenant.guid} (header X-Tenant).`);
      }),
    );
  user
    .command('list')
    .description('list the users of a tenant')
    .argument('<slug>')
    .option(...jsonOption)
    .action(
      withStatements(async (control, slug: string, options: OutputOptions) => {
        const { listUsers } = await import('../tenants/read-tenants.ts');
        const users = await listUsers(control, slug);
        printList(options, users, { row: userRow, name: ({ email }) => email, empty: 'No users.' });
      }),
    );
  addChangeCommand(user);
  addUserRole(user);
  addStateCommand(user, 'disable', 'refuse the logins of a user and end all their sessions');
  addStateCommand(user, 'enable', 'allow the logins of a disabled user again');
  user
    .command('password')
    .description('set a new password and end all sessions of the user; it is generated and shown only once')
    .argument('<slug>')
    .argument('<email>')
    .option(...passwordOption)
    .option(...jsonOption)
    .action(
      withInstallation(async (installation, slug: string, email: string, options: PasswordOptions) => {
        const { generatePassword, setPassword } = await import('../tenants/users.ts');
        const { createPasswords } = await import('../../auth/passwords.ts');
        const password = options.passwordStdin ? await readSecret('Password') : generatePassword();
        const changed = await setPassword(installation, createPasswords(), slug, email, password);
        printLogin({ guid: changed.guid, email: changed.email }, password, options);
      }),
    );
  addRemoveUser(user);
}

function addChangeCommand(user: Command): void {
  user
    .command('change')
    .description('change names, role, scope or entity of a user')
    .argument('<slug>')
    .argument('<email>')
    .option('--first-name <name>', 'first name')
    .option('--last-name <name>', 'last name')
    .option('--role <role>', 'role of the tenant')
    .addOption(new Option('--scope <scope>', 'data that the user may use: of the own entity, or all').choices(scopes))
    .option('--entity <id>', 'entity that the user belongs to', parsePositive)
    .option('--no-entity', 'the user belongs to no entity')
    .option(...jsonOption)
    .action(
      withInstallation(async (installation, slug: string, address: string, options: ChangeOptions) => {
        const { changeUser } = await import('../tenants/change-user.ts');
        const { firstName, lastName, role, scope, entity } = options;
        const entityId = entity === false ? null : entity;
        const changed = await changeUser(installation, slug, address, { firstName, lastName, role, scope, entityId });
        printResult(options, changed, () => fieldsText(changed));
      }),
    );
}

function addStateCommand(user: Command, name: 'disable' | 'enable', description: string): void {
  user
    .command(name)
    .description(description)
    .argument('<slug>')
    .argument('<email>')
    .option(...jsonOption)
    .action(
      withInstallation(async (installation, slug: string, address: string, options: OutputOptions) => {
        const { setDisabled } = await import('../tenants/users.ts');
        const { guid, email } = await setDisabled(installation, slug, address, name === 'disable');
        printResult(options, { guid, email, state: `${name}d` }, () => `${email} is ${name}d.`);
      }),
    );
}

/** What an operator looks for comes first: a narrow terminal omits the last columns. */
function userRow({ guid, email, role, scope, state, ...others }: UserSummary): object {
  return { email, role, scope, state, ...others, guid };
}

/** Prints the user with a generated password. A password that came from stdin is not repeated. */
function printLogin(user: object, password: string, options: PasswordOptions): void {
  const fields = options.passwordStdin ? user : { ...user, password };
  printResult(options, fields, () => fieldsText(fields));
}
