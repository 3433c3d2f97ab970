import { defineChange } from '../command/define-change.ts';
import { argument } from '../command/operation-fields.ts';
import { countText } from '../command/texts.ts';
import { madeKeysText, readClones } from './user-login.command.ts';
import type { UserRemoval } from './users.ts';

export const removeUserOperation = defineChange({
  name: 'user remove',
  help: {
    description:
      'remove a user with all sessions and legacy clients; to refuse the logins only: user disable',
    examples: [
      'user remove acme bob@acme.test --dry-run',
      'user remove acme bob@acme.test --reason "asked for it"',
    ],
  },
  fields: { slug: argument('slug'), email: argument('email') },
  effect: 'destroys',
  async change({ slug, email: address }, { installation }, isDryRun) {
    const { removeUser } = await import('./users.ts');
    const keys = await madeKeysText(installation, { slug, email: address }, !isDryRun);
    const removed = await removeUser(installation, slug, address, isDryRun);
    const { email } = removed;
    const loss = lossText(removed);
    const { clones, inClones } = await readClones(installation, { slug, email });

    return {
      document: { ...removed, state: 'removed', clones },
      plan: `${email} would be removed, ${loss}.${keys}${inClones}`,
      steady: lossText({ ...removed, sessions: 0 }),
      confirm: {
        name: email,
        kind: 'address',
        consequence: `will be removed from ${slug}, ${loss}`,
      },
      done: `${email} is removed, ${loss}.${keys}${inClones}`,
    };
  },
});

function lossText({ role, sessions, clients }: UserRemoval): string {
  return `with the role ${role}, ${countText(sessions, 'open session')} and ${countText(clients, 'legacy client')}`;
}
