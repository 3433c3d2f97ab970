import { Encrypter } from 'age-encryption';
import { OperatorError } from '../../../lib/log/operator-error.ts';
import { maxAgeHeaderBytes } from './seal.ts';

/** A recipient of age 1.3 has 1,959 characters. */
const maxNamedLength = 20;

/**
 * Checks that archives can be sealed for recipients, and opened again: those of age (`age1…`),
 * and those of its version 1.3, against quantum computers (`age1pq1…`) and of hardware keys
 * (`age1tag1…`, `age1tagpq1…`). Those of plugins are of none of these kinds.
 * @param recipients of age, at least one
 * @throws {OperatorError} that names the recipient that is wrong
 */
export async function requireRecipients(recipients: readonly string[]): Promise<void> {
  for (const recipient of recipients) {
    await headerBytesFor([recipient]).catch(cause => {
      throw new OperatorError(
        `BACKUP_RECIPIENTS has ${nameOf(recipient)}, for which no archive can be sealed: it is mistyped, or of a ` +
          'plugin of age. Set recipients that begin with age1 (bin/backoffice backup keygen makes one), age1pq1, ' +
          'age1tag1 or age1tagpq1',
        { cause },
      );
    });
  }

  const bytes = await headerBytesFor(recipients);
  if (bytes > maxAgeHeaderBytes) {
    throw new OperatorError(
      `BACKUP_RECIPIENTS has ${recipients.length} recipients, whose entries in an archive take ${bytes} bytes: at most ` +
        `${maxAgeHeaderBytes} can be opened again. Set fewer`,
    );
  }
}

/** Returns the size of an archive of nothing, which is a header and some 50 bytes more. */
async function headerBytesFor(recipients: readonly string[]): Promise<number> {
  const encrypter = new Encrypter();
  for (const recipient of recipients) {
    encrypter.addRecipient(recipient);
  }

  return (await encrypter.encrypt('')).length;
}

function nameOf(recipient: string): string {
  return recipient.length > maxNamedLength ? `${recipient.slice(0, maxNamedLength)}…` : recipient;
}
