import { defineChange } from '../command/define-change.ts';
import { argument, flag } from '../command/operation-fields.ts';
import { countText } from '../command/texts.ts';
import type { ServerRemoval } from './remove-server.ts';

export const removeServerOperation = defineChange({
  name: 'server remove',
  help: {
    description: 'remove a server on which no tenant is, with its templates; drain it first',
    examples: [
      'server remove second --dry-run',
      'server remove second --reason "machine is replaced"',
    ],
  },
  fields: {
    name: argument('server', { label: 'Server' }),
    lost: flag('the server is gone: drop nothing on it', {
      label: 'The server is lost',
      isAdvanced: true,
    }),
  },
  effect: 'destroys',
  async change({ name, lost }, { installation }, isDryRun) {
    const { removeServer } = await import('./remove-server.ts');
    const removed = await removeServer(installation, name, lost, isDryRun);
    const loss = lossText(removed);
    return {
      document: { ...removed, state: 'removed' },
      plan: `${name} would be removed. ${loss}`,
      confirm: { name, kind: 'name', consequence: `will be removed. ${loss}`.replace(/\.$/, '') },
      done: `${name} is removed. ${loss}`,
    };
  },
});

function lossText({ forgotten, formerTenants, left }: ServerRemoval): string {
  return [
    left === null ? 'Nothing is dropped on it.' : 'Its templates are dropped.',
    forgotten > 0
      ? `${countText(forgotten, 'restored, former or unfinished database')} on it are forgotten.`
      : '',
    formerTenants > 0
      ? `On a recovered copy of it, the databases of ${countText(formerTenants, 'tenant')} that ` +
        'were there are not found any more.'
      : '',
    left && left.length > 0
      ? `These databases stay there, and belong to no tenant: ${left.join(', ')}.`
      : '',
  ]
    .filter(Boolean)
    .join(' ');
}
