import { defineOperation, type Operation } from '../command/operation.ts';
import { argument, argumentList } from '../command/operation-fields.ts';
import { fieldsText } from '../command/text-table.ts';
import { countText } from '../command/texts.ts';
import type { RoleSummary } from './roles.ts';

const list = defineOperation({
  name: 'role list',
  description: 'list the roles of a tenant with their permissions',
  fields: { slug: argument('slug') },
  examples: ['role list acme'],
  access: 'statements',
  effect: 'reads',
  isList: true,
  async run({ slug }, { installation, output }) {
    const { listRoles } = await import('./roles.ts');
    const roles = await listRoles(installation, slug);
    output.list(roles, { row: shown, name: ({ name }) => name, empty: 'No roles.' });
  },
});

const add = defineOperation({
  name: 'role add',
  description: 'add a role',
  fields: { slug: argument('slug'), role: argument('text'), permissions: argumentList('permission') },
  examples: ['role add acme Buyer orders.read orders.write'],
  access: 'installation',
  effect: 'changes',
  async plan({ slug, role, permissions }, { installation }) {
    const { addRole } = await import('./roles.ts');
    const planned = await addRole(installation, slug, role, permissions, true);
    return {
      document: { ...planned, state: 'planned' },
      text: () => `Would be added:\n${fieldsText(shown(planned))}`,
    };
  },
  async run({ slug, role, permissions }, { installation, output }) {
    const { addRole } = await import('./roles.ts');
    const added = await addRole(installation, slug, role, permissions);
    output.result(added, () => fieldsText(shown(added)));
  },
});

const defineChange = (change: 'grant' | 'revoke', more: Pick<Operation, 'description' | 'examples'>): Operation =>
  defineOperation({
    ...more,
    name: `role ${change}`,
    fields: {
      slug: argument('slug'),
      role: argument('role'),
      permissions: argumentList('permission', { isRequired: true }),
    },
    access: 'installation',
    effect: 'changes',
    async plan(fields, { installation }) {
      const { changePermissions } = await import('./roles.ts');
      const { changed, role } = await changePermissions(installation, fields, change, true);
      const { name, users } = role;
      const verb = change === 'grant' ? 'get' : 'lose';
      return {
        document: { name, users, [change]: changed, state: 'planned' },
        text: () =>
          `${countText(users, 'user')} with the role ${name} would ${verb}: ${changed.join(' ') || 'nothing'}.`,
      };
    },
    async run(fields, { installation, output }) {
      const { changePermissions } = await import('./roles.ts');
      const { role } = await changePermissions(installation, fields, change);
      output.result(role, () => fieldsText(shown(role)));
    },
  });

const remove = defineOperation({
  name: 'role remove',
  description: 'remove a role that no user has',
  fields: { slug: argument('slug'), role: argument('role') },
  examples: ['role remove acme Buyer'],
  access: 'installation',
  effect: 'destroys',
  async plan({ slug, role }, { installation }) {
    const { removeRole } = await import('./roles.ts');
    await removeRole(installation, slug, role, true);
    return {
      document: { name: role, state: 'planned' },
      text: () => `Role ${role} would be removed. No user of ${slug} has it.`,
      confirm: { name: role, kind: 'name', consequence: `will be removed from ${slug}, with its permissions` },
    };
  },
  async run({ slug, role }, { installation, output }) {
    const { removeRole } = await import('./roles.ts');
    await removeRole(installation, slug, role);
    output.result({ name: role, state: 'removed' }, () => `Role ${role} is removed.`);
  },
});

export const operations = [
  list,
  add,
  defineChange('grant', {
    description: 'add permissions to a role; users have them from their next token on',
    examples: ['role grant acme Buyer pricing.read'],
  }),
  defineChange('revoke', {
    description: 'remove permissions from a role; every process refuses them within a second',
    examples: ['role revoke acme Buyer orders.write'],
  }),
  remove,
];

function shown({ permissions, ...role }: RoleSummary) {
  return { ...role, permissions: permissions.join(' ') || '–' };
}
