import { openInstallation } from '../../src/control/installation.ts';
import type { SecretBox } from '../../src/control/secret-box.ts';
import { readConfig } from '../../src/lib/config/config.ts';
import { type RunningServer, startServer } from '../../src/service/server.ts';
import type { World } from './world.ts';

/** A server that uses the databases of a world, with connections and keys of its own. */
export interface ServerBeside {
  readonly service: RunningServer;
  readonly url: string;
  readonly secrets: SecretBox;
  /**
   * Stops the server, and closes its connections.
   * @param delayMs for so long it accepts further connections
   */
  stop(delayMs?: number): Promise<void>;
}

/**
 * Starts a server in this process, beside that of the world. Its log is that of the world.
 * @param settings that it has in place of those of the world
 */
export async function startServerBeside(
  world: World,
  settings: Record<string, string>,
): Promise<ServerBeside> {
  const config = readConfig({ ...world.environment, ...settings });
  const installation = await openInstallation(config);
  const service = await startServer({
    config,
    installation,
    log: world.log,
    passwords: world.passwords,
  });

  return {
    service,
    url: `http://127.0.0.1:${service.port}`,
    secrets: installation.secrets,
    stop: async delayMs => {
      await service.stop(delayMs);
      await installation.close();
    },
  };
}
