import { readFile } from 'node:fs/promises';
import { generateX25519Identity, identityToRecipient } from 'age-encryption';
import { OperatorError } from '../../../lib/log/operator-error.ts';

/** A key pair of age: the identity opens the archives that are sealed for the recipient. */
export interface AgeIdentity {
  /** The secret: `AGE-SECRET-KEY-1…`. */
  readonly identity: string;
  /** The recipient, which is no secret: `age1…`. */
  readonly recipient: string;
}

/**
 * Makes an identity. A person who has the identity can open all archives that are sealed for
 * its recipient.
 */
export async function makeIdentity(): Promise<AgeIdentity> {
  const identity = await generateX25519Identity();

  return { identity, recipient: await identityToRecipient(identity) };
}

/**
 * Reads the identities of age in a file, as `age-keygen` and `backup keygen` write it: one in
 * each line, beside comments.
 * @param path `BACKUP_IDENTITY_FILE`; undefined: this host opens no archives
 * @throws {OperatorError} when there is no such file, or none in it
 */
export async function readIdentities(path: string | undefined): Promise<string[]> {
  if (path === undefined) {
    throw new OperatorError(
      'BACKUP_IDENTITY_FILE is not set, so this host opens no archive: run the command on the recovery host, where it ' +
        'names the file of an identity',
    );
  }

  const text = await readFile(path, 'utf8').catch(cause => {
    const { code } = cause as NodeJS.ErrnoException;
    throw new OperatorError(`The file of BACKUP_IDENTITY_FILE, ${path}, cannot be read (${code})`, {
      cause,
    });
  });
  const lines = text.split('\n').map(line => line.trim());
  const identities = lines.filter(line => line !== '' && !line.startsWith('#'));
  if (identities.length === 0) {
    throw new OperatorError(`The file of BACKUP_IDENTITY_FILE, ${path}, has no identity`);
  }

  const wrong = await findWrong(identities);
  if (wrong !== undefined) {
    throw new OperatorError(
      `Line ${lines.indexOf(wrong) + 1} of ${path} is no identity of age: a line is AGE-SECRET-KEY-1… or ` +
        'AGE-SECRET-KEY-PQ-1…, and the file is not sealed itself',
    );
  }

  return identities;
}

async function findWrong(identities: readonly string[]): Promise<string | undefined> {
  for (const identity of identities) {
    const isRight = await identityToRecipient(identity).then(
      () => true,
      () => false,
    );
    if (!isRight) return identity;
  }
  return undefined;
}
