import { defineOperation } from '../command/operation.ts';
import { flag } from '../command/operation-fields.ts';
import type { WriteConditions } from './target/target.ts';
import type { InitResult } from './writer.ts';

export const initOperation = defineOperation({
  name: 'backup init',
  help: {
    description:
      'make BACKUP_TARGET the place of the archives of this installation: once, before the ' +
      'first run',
    examples: [
      'backup init # after BACKUP_TARGET is mounted',
      'backup init --take-over # after control restore',
    ],
    more: `Writes into a folder the file without which it is taken for a disk that is not mounted, and into the target which control
database of this installation writes there. A copy of the control database, such as that of a cloned machine, is refused:
it needs a BACKUP_TARGET of its own. After a control database was lost and restored, --take-over gives the new one its place.

Says whether the store refuses to replace objects under a condition. Nothing depends on it but how soon two control databases
that write at the same time are noticed.`,
  },
  fields: {
    takeOver: flag('the control database that writes there is gone: take its place', {
      label: 'Take the target over',
      isAdvanced: true,
    }),
  },
  effect: 'changes',
  async plan({ takeOver }, { installation }) {
    const { withConnection } = await import('../../lib/postgres/connection.ts');
    const { requireNoLostControl } = await import('./lost-control.ts');
    const { initTarget } = await import('./writer.ts');
    const { openBackupTarget } = await import('./target/open-target.ts');
    const target = await openBackupTarget(installation);
    await requireNoLostControl(installation);
    const planned = await withConnection(installation.controlUrl, control =>
      initTarget(control, target, { takeOver, isDryRun: true }),
    );
    const texts: Record<InitResult['state'], string> = {
      new: 'would become a target of this installation',
      'taken over': 'would be taken over from another control database',
      unchanged: 'is a target of this installation already',
    };

    return {
      document: { ...planned, state: 'planned', would: planned.state },
      text: () => `${planned.target} ${texts[planned.state]}.`,
    };
  },
  async run({ takeOver }, { installation, output }) {
    const { withBackupLock } = await import('./backup-lock.ts');
    const { requireNoLostControl } = await import('./lost-control.ts');
    const { initTarget } = await import('./writer.ts');
    const { openBackupTarget } = await import('./target/open-target.ts');
    const target = await openBackupTarget(installation);
    await requireNoLostControl(installation);
    const result = await withBackupLock(installation.controlUrl, 'archives', control =>
      initTarget(control, target, { takeOver, isDryRun: false }),
    );

    output.result(result, () => resultText(result));
  },
});

function resultText({ target, state, conditions }: InitResult): string {
  const next = 'Next: bin/backoffice backup run --all';
  const said = conditions ? ` ${conditionsText(conditions)}` : '';
  if (state === 'new') return `${target} is a target of this installation now.${said} ${next}`;
  if (state === 'taken over') {
    return (
      `${target} is taken over: the control database that wrote there before is refused from ` +
      `now on.${said} ${next}`
    );
  }
  return `${target} is a target of this installation already.${said}`;
}

function conditionsText({ ifNoneMatch, ifMatch }: WriteConditions): string {
  if (ifNoneMatch && ifMatch) {
    return 'It refuses to replace objects under a condition (if-none-match, if-match).';
  }
  const missing = [ifNoneMatch ? [] : 'if-none-match', ifMatch ? [] : 'if-match']
    .flat()
    .join(' and ');
  return (
    `It does not heed ${missing}: two control databases that write at the same moment are ` +
    'noticed by their next run.'
  );
}
