import { type Command, Option } from 'commander';
import { createPasswords } from '../../auth/passwords.ts';
import { scopes } from '../../control/user-entities.ts';
import type { Installation } from '../../installation.ts';
import { findTenant, listUsers } from '../tenants/tenants.ts';
import { addUser, generatePassword, setDisabled, setPassword } from '../tenants/users.ts';
import { positive, printFields, printJson, printTable, readStdin, withInstallation } from './command.ts';

interface Json {
  json?: boolean;
}

interface UserOptions extends Json {
  firstName: string;
  lastName: string;
  role: string;
  scope: (typeof scopes)[number];
  entity?: number;
  passwordStdin?: boolean;
}

/** `user`: the people of a tenant. */
export function addUserCommands(user: Command): void {
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
