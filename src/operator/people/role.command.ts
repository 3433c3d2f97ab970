import { defineChange } from '../command/define-change.ts';
import { defineList } from '../command/define-list.ts';
import type { Operation } from '../command/operation.ts';
import { argument, argumentList } from '../command/operation-fields.ts';
import { fieldsText } from '../command/text-table.ts';
import { countText } from '../command/texts.ts';
import type { RoleSummary } from './roles.ts';

const list = defineList({
  name: 'role list',
  description: 'list the roles of a tenant with their permissions',
  fields: { slug: argument('slug') },
  examples: ['role list acme'],
  access: 'statements',
  async items({ slug }, { installation }) {
    const { listRoles } = await import('./roles.ts');
    return listRoles(installation, slug);
  },
  row: shown,
  nameOf: ({ name }) => name,
  empty: 'No roles.',
});

const add = defineChange({
  name: 'role add',
  description: 'add a role',
  fields: { slug: argument('slug'), role: argument('text'), permissions: argumentList('permission') },
  examples: ['role add acme Buyer orders.read orders.write'],
  effect: 'changes',
  async change({ slug, role, permissions }, { installation }, isDryRun) {
    const { addRole } = await import('./roles.ts');
    const added = await addRole(installation, slug, role, permissions, isDryRun);
    const done = fieldsText(shown(added));
    return { document: added, plan: `Would be added:\n${done}`, done };
  },
});

const defineRights = (change: 'grant' | 'revoke', more: Pick<Operation, 'description' | 'examples'>): Operation =>
  defineChange({
    ...more,
    name: `role ${change}`,
    fields: {
      slug: argument('slug'),
      role: argument('role'),
      permissions: argumentList('permission', { isRequired: true }),
    },
    effect: 'changes',
    async change(fields, { installation }, isDryRun) {
      const { changePermissions } = await import('./roles.ts');
      const { changed, role } = await changePermissions(installation, fields, change, isDryRun);
      const { name, users } = role;
      const verb = change === 'grant' ? 'get' : 'lose';
      return {
        document: role,
        facts: { [change]: changed },
        plan: `The role ${name}, of ${countText(users, 'user')}, would ${verb}: ${changed.join(' ') || 'nothing'}.`,
        done: fieldsText(shown(role)),
      };
    },
  });

const remove = defineChange({
  name: 'role remove',
  description: 'remove a role that no user has',
  fields: { slug: argument('slug'), role: argument('role') },
  examples: ['role remove acme Buyer'],
  effect: 'destroys',
  async change({ slug, role }, { installation }, isDryRun) {
    const { removeRole } = await import('./roles.ts');
    await removeRole(installation, slug, role, isDryRun);
    return {
      document: { name: role, state: 'removed' },
      plan: `Role ${role} would be removed. No user of ${slug} has it.`,
      confirm: { name: role, kind: 'name', consequence: `will be removed from ${slug}, with its permissions` },
      done: `Role ${role} is removed.`,
    };
  },
});

export const operations = [
  list,
  add,
  defineRights('grant', {
    description: 'add permissions to a role; users have them from their next token on',
    examples: ['role grant acme Buyer pricing.read'],
  }),
  defineRights('revoke', {
    description: 'remove permissions from a role; every process refuses them within a second',
    examples: ['role revoke acme Buyer orders.write'],
  }),
  remove,
];

function shown({ permissions, ...role }: RoleSummary) {
  return { ...role, permissions: permissions.join(' ') || '–' };
}
