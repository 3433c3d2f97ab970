import { defineOperation } from '../command/operation.ts';
import { flag } from '../command/operation-fields.ts';
import { countText } from '../command/texts.ts';
import { openBackupTarget } from './open-backup-target.ts';

export const initOperation = defineOperation({
  name: 'backup init',
  description: 'make BACKUP_TARGET the place of the archives of this installation: once, before the first run',
  fields: { lost: flag('the archives that were there are lost: begin anew') },
  examples: ['backup init # after BACKUP_TARGET is mounted'],
  help: `Writes into the target whose it is. No run writes to a folder that is not mounted, or to the target of another
installation. In a target of this installation that another control database of it has written to, such as the one that
this one has replaced, it takes that one's place: it records its archives.`,
  effect: 'changes',
  async plan({ lost }, { installation: { controlUrl } }) {
    const { withConnection } = await import('../../postgres/connection.ts');
    const { initTarget } = await import('./target-owner.ts');
    const target = await openBackupTarget();
    const isNew = await withConnection(controlUrl, control => initTarget(control, target, lost, true));
    const state = isNew ? 'would belong to this installation' : 'belongs to this installation already';
    return {
      document: { target: target.description, isNew, state: 'planned' },
      text: () => `${target.description} ${state}.`,
    };
  },
  async run({ lost }, { installation: { controlUrl, secrets }, output }) {
    const { withBackupLock } = await import('./backup-lock.ts');
    const { initTarget } = await import('./target-owner.ts');
    const { readTargetKeys } = await import('./target-keys.ts');
    const { adoptKeys, createKeyring } = await import('./data-keys.ts');
    const { matchLedger } = await import('./match-ledger.ts');
    const target = await openBackupTarget();
    const result = await withBackupLock(controlUrl, 'archives', async control => {
      const isNew = await initTarget(control, target, lost, false);
      const keys = await readTargetKeys(target);
      await adoptKeys(control, keys, secrets);
      return { isNew, recorded: await matchLedger(control, { target, keys, keyring: createKeyring(keys, secrets) }) };
    });
    output.result({ target: target.description, ...result }, () => resultText(target.description, result));
  },
});

function resultText(target: string, { isNew, recorded }: { isNew: boolean; recorded: number }): string {
  const next = 'Next: bin/backoffice backup run --all';
  if (isNew) return `${target} now belongs to this installation. ${next}`;
  if (recorded === 0) return `${target} belongs to this installation already.`;
  return `Taken over: recorded ${countText(recorded, 'archive')} of another control database. ${next}`;
}
