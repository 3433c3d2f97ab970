import { readConfig } from '../../src/lib/config/config.ts';
import { openTarget } from '../../src/operator/backup/target/open-target.ts';
import type { Target } from '../../src/operator/backup/target/target.ts';
import { ArchiveFacts } from './archive-facts.ts';
import { backupSettings } from './backup-settings.ts';
import { createDedicatedServer } from './dedicated-server.ts';
import { useServerFolder } from './server-folder.ts';
import { backUp } from './succeed.ts';
import { laterObject, use } from './use.ts';

/**
 * Makes a server with the tenants acme and globex before the tests of a `describe`, and
 * archives it into a folder.
 * @param extraSettings further environment variables of its commands
 */
export function useArchivedServer(extraSettings: Readonly<Record<string, string>> = {}) {
  const server = use(createDedicatedServer);
  const folder = useServerFolder('archives');
  let settings: Record<string, string>;
  let target: Target;

  before(async () => {
    settings = { ...server.environment, ...(await backupSettings(folder)), ...extraSettings };
    for (const slug of ['acme', 'globex']) await server.provision(slug);
    target = await openTarget(readConfig(settings).backup);
    await backUp(settings);
  });

  return {
    server,
    /** The folder of the archives, and the target in it. */
    folder,
    target: laterObject(() => target),
    facts: new ArchiveFacts(server),
    /** Returns the settings of commands, also of those that open the archives. */
    settings: () => settings,
  };
}
