import { defineOperation } from '../command/operation.ts';
import { argument } from '../command/operation-fields.ts';
import { countText } from '../command/texts.ts';
import type { UserRemoval } from './users.ts';

export const removeUserOperation = defineOperation({
  name: 'user remove',
  description: 'remove a user with all sessions and legacy clients; to refuse the logins only: user disable',
  fields: { slug: argument('slug'), email: argument('email') },
  examples: ['user remove acme bob@acme.test --dry-run', 'user remove acme bob@acme.test --reason "asked for it"'],
  access: 'installation',
  effect: 'destroys',
  async plan({ slug, email: address }, { installation }) {
    const { removeUser } = await import('./users.ts');
    const plan = await removeUser(installation, slug, address, true);
    const { email } = plan;
    return {
      document: { ...plan, state: 'planned' },
      text: () => `${email} would be removed, ${lossText(plan)}.`,
      steady: lossText({ ...plan, sessions: 0 }),
      confirm: { name: email, kind: 'address', consequence: `will be removed from ${slug}, ${lossText(plan)}` },
    };
  },
  async run({ slug, email }, { installation, output }) {
    const { removeUser } = await import('./users.ts');
    const removed = await removeUser(installation, slug, email);
    output.result({ ...removed, state: 'removed' }, () => `${removed.email} is removed, ${lossText(removed)}.`);
  },
});

function lossText({ role, sessions, clients }: UserRemoval): string {
  return `with the role ${role}, ${countText(sessions, 'open session')} and ${countText(clients, 'legacy client')}`;
}
