import type { SecretBox } from '../../control/secret-box.ts';
import type { Installation } from '../../installation.ts';
import { type KeyHolder, runningKeyHolders } from '../tenants/running-services.ts';

/**
 * What a process lacks once the secrets are sealed under a new key, which is then the only one of the installation:
 * - `unknown`: its build does not register its keys.
 * - `lacks_key`: it could open no secret, and nobody could log in.
 * - `is_previous`: it has the key as `MASTER_KEY_PREVIOUS` only, so it could not start again. A command would seal new
 *   secrets under its other key.
 */
type Lack = 'unknown' | 'lacks_key' | 'is_previous';

/** A running process whose keys block `control reseal`. */
export interface BlockingHolder extends Pick<KeyHolder, 'kind' | 'host' | 'pid' | 'build'> {
  lack: Lack;
}

/** Returns the running processes and commands, without this one, whose `MASTER_KEY` is not the one of this command. */
export async function processesBlockingReseal({
  statements,
  secrets,
  member,
}: Pick<Installation, 'statements' | 'secrets' | 'member'>): Promise<BlockingHolder[]> {
  const holders = await runningKeyHolders(statements);
  return holders.flatMap(({ id, kind, host, pid, build, ...keys }) => {
    const lack = lackOf(keys, secrets.current);
    return lack && id !== member?.process.id ? [{ kind, host, pid, build, lack }] : [];
  });
}

function lackOf({ key, previous }: Pick<KeyHolder, 'key' | 'previous'>, next: SecretBox['current']): Lack | undefined {
  if (key === next.fingerprint) return undefined;
  if (key === null) return 'unknown';
  return previous === next.fingerprint ? 'is_previous' : 'lacks_key';
}
