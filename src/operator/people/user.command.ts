import { scopes } from '../../control/scopes.ts';
import { countText } from '../command/count-text.ts';
import { defineOperation } from '../command/operation.ts';
import type { Context, Output } from '../command/operation-context.ts';
import { argument, flag, option, optionalArgument, optionalSecret } from '../command/operation-fields.ts';
import { parsePositive } from '../command/parse-positive.ts';
import { fieldsText } from '../command/text-table.ts';
import type { UserSummary } from '../tenants/read-tenants.ts';
import { removeUserOperation } from './user-remove.command.ts';

const user = { slug: argument('slug'), email: argument('email') };
const password = optionalSecret(
  'Password',
  '--password-stdin',
  'read the password from stdin instead of generating one',
);
const scopeText = 'data that the user may use: of the own entity, or all';
const entityText = 'entity that the user belongs to';

const remedy = 'Change that: user change --entity, or --scope All.';

const add = defineOperation({
  name: 'user add',
  description: 'add a user; the password is generated and shown only once',
  fields: {
    slug: argument('slug'),
    email: argument('text'),
    firstName: option('<name>', 'first name', { default: 'New' }),
    lastName: option('<name>', 'last name', { default: 'User' }),
    role: option('<role>', 'role of the tenant', { kind: 'role', default: 'Member' }),
    scope: option('<scope>', scopeText, { choices: scopes, default: 'Self' }),
    entity: option('<id>', entityText, { parse: parsePositive }),
    password,
  },
  examples: [
    'user add acme bob@acme.test --first-name Bob --last-name Miller --role Member --scope All',
    'user add acme bob@acme.test --password-stdin < password-file',
  ],
  access: 'installation',
  effect: 'changes',
  async run({ slug, entity, password: given, ...fields }, { installation, output }) {
    const { addUser, generatePassword } = await import('./users.ts');
    const { createPasswords } = await import('../../auth/passwords.ts');
    const { findTenant } = await import('../tenants/tenants.ts');
    const tenant = await findTenant(installation, slug);
    const login = { password: given ?? generatePassword(), entityId: entity ?? null };
    const added = await addUser(installation, createPasswords(), { tenant, ...fields, ...login });
    const { role, scope } = fields;
    const shown = { guid: added.guid, email: added.email, role, scope, entityId: login.entityId };
    returnLogin(output, shown, login.password, given !== undefined);
    output.text(() => `\nThe person logs in with the tenant ${tenant.guid} (header X-Tenant).`);
    if (scope === 'Self' && entity === undefined)
      output.text(() => `The scope Self shows what belongs to the user's entity, and there is none. ${remedy}`);
  },
});

const list = defineOperation({
  name: 'user list',
  description: 'list the users of a tenant',
  fields: { slug: argument('slug') },
  examples: ['user list acme', 'user list acme -o name'],
  access: 'statements',
  effect: 'reads',
  isList: true,
  async run({ slug }, { installation, output }) {
    const { listUsers } = await import('../tenants/read-tenants.ts');
    const users = await listUsers(installation, slug);
    output.list(users, { row: userRow, name: ({ email }) => email, empty: 'No users.' });
  },
});

const change = defineOperation({
  name: 'user change',
  description: 'change names, role, scope or entity of a user',
  fields: {
    ...user,
    firstName: option('<name>', 'first name'),
    lastName: option('<name>', 'last name'),
    role: option('<role>', 'role of the tenant', { kind: 'role' }),
    scope: option('<scope>', scopeText, { choices: scopes }),
    entity: option('<id>', entityText, { parse: parsePositive }),
    noEntity: flag('the user belongs to no entity'),
  },
  examples: ['user change acme bob@acme.test --role Administrator --scope All'],
  access: 'installation',
  effect: 'changes',
  async run({ slug, email, entity, noEntity, ...changes }, { installation, output }) {
    const { changeUser } = await import('./change-user.ts');
    const entityId = noEntity ? null : entity;
    const changed = await changeUser(installation, slug, email, { ...changes, entityId });
    output.result(changed, () => fieldsText(changed));
  },
});

const role = defineOperation({
  name: 'user role',
  description: 'show the role of a user and its permissions, or give the user another role',
  fields: {
    ...user,
    role: optionalArgument('role', { description: 'the new role; every user has exactly one' }),
  },
  examples: ['user role acme bob@acme.test', 'user role acme bob@acme.test Administrator'],
  access: 'installation',
  effect: 'reads',
  changingFields: ['role'],
  async run({ slug, email, role }, { installation, output }) {
    const { changeUser, readUserRole } = await import('./change-user.ts');
    if (role !== undefined) await changeUser(installation, slug, email, { role });
    const { permissions, others, ...found } = await readUserRole(installation, slug, email);
    output.result({ ...found, permissions, others }, () =>
      fieldsText({
        ...found,
        permissions: permissions.join(' ') || '–',
        'other roles': others.join(', ') || '–',
      }),
    );
  },
});

const disable = defineOperation({
  name: 'user disable',
  description: 'refuse the logins of a user and end all their sessions',
  fields: user,
  examples: ['user disable acme bob@acme.test --reason "left the company"'],
  access: 'installation',
  effect: 'changes',
  async plan({ slug, email }, { installation }) {
    const { planSessionRevocation } = await import('./plan-revocations.ts');
    const { setDisabled } = await import('./users.ts');
    await setDisabled(installation, slug, email, true, true);
    const sessions = await planSessionRevocation(installation, slug, { email });
    return {
      document: { email, sessions, state: 'planned' },
      text: () => `The logins of ${email} would be refused, and ${countText(sessions.length, 'open session')} end.`,
    };
  },
  run: ({ slug, email }, context) => setState(context, slug, email, 'disabled'),
});

const enable = defineOperation({
  name: 'user enable',
  description: 'allow the logins of a disabled user again',
  fields: user,
  examples: ['user enable acme bob@acme.test'],
  access: 'installation',
  effect: 'changes',
  run: ({ slug, email }, context) => setState(context, slug, email, 'enabled'),
});

const setPassword = defineOperation({
  name: 'user password',
  description: 'set a new password and end all sessions of the user; it is generated and shown only once',
  fields: { ...user, password },
  examples: ['user password acme bob@acme.test'],
  access: 'installation',
  effect: 'changes',
  async run({ slug, email, password: given }, { installation, output }) {
    const { generatePassword, setPassword } = await import('./users.ts');
    const { createPasswords } = await import('../../auth/passwords.ts');
    const password = given ?? generatePassword();
    const changed = await setPassword(installation, createPasswords(), slug, email, password);
    returnLogin(output, { guid: changed.guid, email: changed.email }, password, given !== undefined);
  },
});

export const operations = [add, list, change, role, disable, enable, setPassword, removeUserOperation];

async function setState(
  { installation, output }: Context<'installation'>,
  slug: string,
  address: string,
  state: 'disabled' | 'enabled',
): Promise<void> {
  const { setDisabled } = await import('./users.ts');
  const { guid, email } = await setDisabled(installation, slug, address, state === 'disabled');
  output.result({ guid, email, state }, () => `${email} is ${state}.`);
}

/** What an operator looks for comes first: a narrow terminal omits the last columns. */
function userRow({ guid, email, role, scope, state, ...others }: UserSummary): object {
  return { email, role, scope, state, ...others, guid };
}

/** Returns the user with a generated password. A password that was given is not repeated. */
function returnLogin(output: Output, user: object, password: string, wasGiven: boolean): void {
  const fields = wasGiven ? user : { ...user, password };
  output.result(fields, () => fieldsText(fields));
}
