import { defineOperation } from '../../command/operation.ts';
import type { AgeIdentity } from './identities.ts';

export const keygenOperation = defineOperation({
  name: 'backup keygen',
  help: {
    description:
      'make the identity that opens archives, and the recipient that they are sealed for',
    examples: [
      'backup keygen >> identity.txt # after umask 077, and off the hosts that write archives',
    ],
    more: `Prints the identity once, as age-keygen does: no other copy exists. Whoever has it reads all archives; who has lost it
reads none. Keep it on paper or in a safe, in two places, and on the recovery host, as BACKUP_IDENTITY_FILE. The hosts
that write archives need the recipient only, as BACKUP_RECIPIENTS.`,
  },
  effect: 'reads',
  handling: { control: 'unused' },
  async run(_, { output }) {
    const { makeIdentity } = await import('./identities.ts');
    const made = await makeIdentity();
    output.result(made, () => identityText(made, new Date()));
  },
});

/** Formats an identity as the file that `age -i` and `BACKUP_IDENTITY_FILE` take. */
function identityText({ identity, recipient }: AgeIdentity, now: Date): string {
  return [
    `# created: ${now.toISOString().replace(/\.\d+/, '')}`,
    `# public key: ${recipient}`,
    `# BACKUP_RECIPIENTS=${recipient}`,
    identity,
  ].join('\n');
}
