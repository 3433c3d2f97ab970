import type { Installation } from '../../installation.ts';
import { type KeyHolder, runningKeyHolders } from '../tenants/running-services.ts';

/**
 * What a process lacks once the secrets are sealed under a new key, which is then the only one of the installation:
 * - `lacks_key`: it could open no secret, and nobody could log in.
 * - `is_previous`: it has the key as `MASTER_KEY_PREVIOUS` only, so it could not start again. A command would seal new
 *   secrets under its other key.
 */
type Lack = 'lacks_key' | 'is_previous';

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
  const next = secrets.current.fingerprint;
  const others = (await runningKeyHolders(statements)).filter(
    ({ id, key }) => key !== next && id !== member?.process.id,
  );
  return others.map(({ kind, host, pid, build, previous }) => {
    return { kind, host, pid, build, lack: previous === next ? 'is_previous' : 'lacks_key' };
  });
}
