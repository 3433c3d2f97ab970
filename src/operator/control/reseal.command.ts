import { databaseNameOf } from '../../control/server-urls.ts';
import { defineOperation } from '../command/operation.ts';
import { countText } from '../command/texts.ts';
import type { BlockingHolder } from '../people/blocked-by-keys.ts';
import { confirmBlocking, despiteRunning, processNames } from '../schema/confirm-blocking.ts';

export const resealOperation = defineOperation({
  name: 'control reseal',
  description: 'encrypt every secret again under MASTER_KEY, and refuse all other keys: the last step of a change',
  fields: { despiteRunning },
  examples: [
    'control reseal --dry-run # open every secret, and name the processes that lack the key',
    'control reseal',
  ],
  help: `The command is refused while a process of the service, or another command, runs with another MASTER_KEY than
this one: without this key it could open no secret, and with this key as MASTER_KEY_PREVIOUS it could not start again.
A process that has sent no heartbeat for 10 s does not count.`,
  access: 'installation',
  effect: 'locks out',
  async plan(_, { installation }) {
    const { processesBlockingReseal } = await import('../people/blocked-by-keys.ts');
    const { resealSecrets } = await import('../people/master-key-change.ts');
    const secrets = await resealSecrets(installation, true);
    const blockedBy = await processesBlockingReseal(installation);
    const lines = [`${countText(secrets, 'secret')} would be sealed under MASTER_KEY.`];
    if (blockedBy.length > 0) lines.push(`Refused: ${holdersText(blockedBy)}.`);
    return {
      document: { secrets, blockedBy, state: 'planned' },
      text: () => lines.join('\n'),
      confirm: {
        name: databaseNameOf(installation.controlUrl),
        kind: 'name',
        consequence: 'will accept MASTER_KEY only: processes with another key stop working',
      },
    };
  },
  async run({ despiteRunning }, context) {
    const { installation, output } = context;
    const { processesBlockingReseal } = await import('../people/blocked-by-keys.ts');
    const { resealSecrets } = await import('../people/master-key-change.ts');
    const { withBackupLock } = await import('../archives/backup-lock.ts');
    // A run that goes on meanwhile would seal new keys under the former master key.
    const secrets = await withBackupLock(installation.controlUrl, 'archives', async () => {
      await confirmBlocking(await processesBlockingReseal(installation), holdersText, despiteRunning, context);
      return resealSecrets(installation);
    });
    output.result({ secrets }, () => `${countText(secrets, 'secret is', 'secrets are')} sealed under MASTER_KEY.`);
  },
});

const lacks: Record<BlockingHolder['lack'], string> = {
  lacks_key: ', which does not have this key',
  is_previous: ', which has it as MASTER_KEY_PREVIOUS only',
};

/** Names the processes that `reseal` would cut off from the secrets, as a sentence without its full stop. */
function holdersText(blockedBy: BlockingHolder[]): string {
  const subject = countText(blockedBy.length, 'running process', 'running processes');
  const names = processNames(blockedBy, ({ kind, lack }) => `${kind === 'command' ? ', a command' : ''}${lacks[lack]}`);
  return `${subject} would not have the only key of the secrets as MASTER_KEY: ${names}`;
}
