import { scopes } from '../../control/scopes.ts';
import { defineChange } from '../command/define-change.ts';
import { defineList } from '../command/define-list.ts';
import { argument, option, optionalArgument, parseId } from '../command/operation-fields.ts';
import { fieldsText } from '../command/text-table.ts';
import type { UserSummary } from './read-users.ts';
import { resetFactorsOperation } from './user-factors.command.ts';
import { loginOperations, password, readClones } from './user-login.command.ts';
import { removeUserOperation } from './user-remove.command.ts';

const findUserOperation = defineList({
  name: 'user find',
  help: {
    description: 'find the users with an e-mail address, in all tenants',
    examples: ['user find bob@acme.test'],
  },
  fields: { email: argument('text') },
  async items({ email }, { installation }) {
    const { requireEmail } = await import('./required-values.ts');
    const { findUsers } = await import('./read-users.ts');
    return findUsers(installation, requireEmail(email));
  },
  row: ({ tenant, status, health, email, role, scope, state, guid }) => ({
    tenant,
    status,
    health,
    email,
    role,
    scope,
    state,
    guid,
  }),
  wide: ({ secondFactor, firstName, lastName, entityId, mail }) => ({
    secondFactor,
    firstName,
    lastName,
    entityId,
    mail,
  }),
  nameOf: ({ tenant }) => tenant,
  empty: ({ email }) => `No tenant has a user ${email}.`,
});

const user = { slug: argument('slug'), email: argument('email') };
const scopeText = 'data that the user may use: of the own entity, or all';
const entityText = 'entity that the user belongs to';

const remedy = 'An administrator of the tenant gives the user an entity, or the scope All.';

const add = defineChange({
  name: 'user add',
  help: {
    description: 'add a user; the password is generated and shown only once',
    examples: [
      'user add acme bob@acme.test --first-name Bob --last-name Miller --role Member --scope All',
      'user add acme bob@acme.test --password-stdin < password-file',
    ],
  },
  fields: {
    slug: argument('slug'),
    email: argument('text', { label: 'E-mail address' }),
    firstName: option('<name>', 'first name', { kind: 'text', default: 'New' }),
    lastName: option('<name>', 'last name', { kind: 'text', default: 'User' }),
    role: option('<role>', 'role of the tenant', { kind: 'role', default: 'Member' }),
    scope: option('<scope>', scopeText, { choices: scopes, default: 'Self' }),
    entity: option('<id>', entityText, {
      label: 'Number of the entity',
      kind: 'text',
      parse: parseId,
      isAdvanced: true,
    }),
    password,
  },
  effect: 'changes',
  async change(
    { slug, entity: entityId = null, password: given, ...fields },
    { installation },
    isDryRun,
  ) {
    const { addUser, generatePassword } = await import('./users.ts');
    const { createPasswords } = await import('../../accounts/auth/passwords.ts');
    const { findTenant } = await import('../registry/tenants.ts');

    const tenant = await findTenant(installation, slug);
    const user = { ...fields, tenant, entityId, password: given ?? generatePassword() };
    const { guid, email } = await addUser(installation, createPasswords(), user, isDryRun);

    const { role, scope } = fields;
    const shown = { email, role, scope, entityId };
    // A password that was given is not repeated.
    const added = { guid, ...shown, ...(given === undefined && { password: user.password }) };
    const warning =
      scope === 'Self' && entityId === null
        ? [`The scope Self shows what belongs to the user's entity, and there is none. ${remedy}`]
        : [];

    return {
      document: isDryRun ? shown : added,
      plan: [`Would be added:\n${fieldsText(shown)}`, ...warning].join('\n\n'),
      done: [
        `${fieldsText(added)}\n`,
        `The person logs in with the tenant ${tenant.guid} (header X-Tenant).`,
        ...warning,
      ].join('\n'),
    };
  },
});

const list = defineList({
  name: 'user list',
  help: {
    description: 'list the users of a tenant',
    examples: ['user list acme', 'user list acme -o name'],
  },
  fields: { slug: argument('slug') },
  async items({ slug }, { installation }) {
    const { listUsers } = await import('./read-users.ts');
    return listUsers(installation, slug);
  },
  row: userRow,
  nameOf: ({ email }) => email,
  empty: 'No users.',
});

const role = defineChange({
  name: 'user role',
  help: {
    description: 'show the role of a user and its permissions, or give the user another role',
    examples: ['user role acme bob@acme.test', 'user role acme bob@acme.test Administrator'],
  },
  fields: {
    ...user,
    role: optionalArgument('role', {
      description: 'the new role; every user has exactly one',
      isChange: true,
    }),
  },
  effect: 'reads',
  async change({ slug, email, role }, { installation }, isDryRun) {
    const { readUserRole, setUserRole } = await import('./user-role.ts');
    const changed =
      role === undefined ? undefined : await setUserRole(installation, slug, email, role, isDryRun);
    const { permissions, others, ...found } = await readUserRole(installation, slug, email);
    const { clones, inClones } =
      role === undefined
        ? { clones: undefined, inClones: '' }
        : await readClones(installation, { slug, email: found.email });
    const plan =
      role === undefined
        ? `keep the role ${found.role}`
        : `get the role ${role}, in place of ${found.role}`;

    return {
      document: { ...((isDryRun && changed) || { ...found, permissions, others }), clones },
      plan: `${found.email} would ${plan}.${inClones}`,
      done:
        fieldsText({
          ...found,
          permissions: permissions.join(' ') || '–',
          'other roles': others.join(', ') || '–',
        }) + (inClones === '' ? '' : `\n\n${inClones.trim()}`),
    };
  },
});

export const operations = [
  add,
  list,
  findUserOperation,
  role,
  ...loginOperations,
  resetFactorsOperation,
  removeUserOperation,
];

/** Puts first what an operator looks for: a narrow terminal omits the last columns. */
function userRow({
  guid,
  email,
  role,
  scope,
  state,
  secondFactor,
  mail,
  ...others
}: UserSummary): object {
  return { email, role, scope, state, secondFactor, mail, ...others, guid };
}
