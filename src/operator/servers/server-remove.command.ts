import { defineOperation } from '../command/operation.ts';
import { argument, flag } from '../command/operation-fields.ts';
import { countText } from '../command/texts.ts';
import type { ServerRemoval } from './remove-server.ts';

export const removeServerOperation = defineOperation({
  name: 'server remove',
  description: 'remove a server on which no tenant is, with its warm databases and templates; drain it first',
  fields: { name: argument('server'), lost: flag('the server is gone: drop nothing on it') },
  examples: ['server remove second --dry-run', 'server remove second --reason "machine is replaced"'],
  access: 'installation',
  effect: 'destroys',
  async plan({ name, lost }, { installation }) {
    const { planServerRemoval } = await import('./remove-server.ts');
    const plan = await planServerRemoval(installation, name, lost);
    return {
      document: { ...plan, state: 'planned' },
      text: () => removalText(plan, 'would be removed'),
      confirm: { name, kind: 'name', consequence: `will be removed. ${lossText(plan)}`.replace(/\.$/, '') },
    };
  },
  async run({ name, lost }, { installation, output }) {
    const { removeServer } = await import('./remove-server.ts');
    const removed = await removeServer(installation, name, lost);
    output.result({ ...removed, state: 'removed' }, () => removalText(removed, 'is removed'));
  },
});

function removalText(removal: ServerRemoval, verb: string): string {
  return `${removal.name} ${verb}. ${lossText(removal)}`;
}

function lossText({ warmDatabases, forgotten, formerTenants, left }: ServerRemoval): string {
  const warm = countText(warmDatabases, 'warm database');
  return [
    left === null ? 'Nothing is dropped on it.' : `With it: ${warm}, and the templates.`,
    forgotten > 0 ? `${countText(forgotten, 'restored, former or unfinished database')} on it are forgotten.` : '',
    formerTenants > 0
      ? `restore --at no longer finds the time that ${countText(formerTenants, 'tenant')} spent there.`
      : '',
    left && left.length > 0 ? `These databases stay there, and belong to no tenant: ${left.join(', ')}.` : '',
  ]
    .filter(Boolean)
    .join(' ');
}
