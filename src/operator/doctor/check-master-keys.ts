import type { ControlFacts } from './control-facts.ts';
import { type Finding, toFinding } from './finding.ts';

/**
 * Reports processes of the service that have not the key of the secrets: nobody logs in through them.
 * @param server the name of the server of the control database
 */
export function checkMasterKeys({ keyHolders, keyInForce }: ControlFacts, server: string): Finding[] {
  if (keyInForce === undefined) return [];
  const others = keyHolders.filter(
    ({ kind, key, previous }) => kind === 'service' && ![key, previous].includes(keyInForce),
  );
  return others.map(({ host, pid, build }) =>
    toFinding(server, {
      check: 'master_key_unknown',
      problem: `the process ${host} pid ${pid} (build ${build}) does not have the master key of the secrets, so nobody can log in there`,
      remedy: 'Set its MASTER_KEY to the one of this command, and restart it.',
    }),
  );
}
