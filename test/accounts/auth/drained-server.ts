import type { Client } from '../../support/client.ts';
import type { World } from '../../support/world.ts';

/**
 * Runs `call` with an anonymous client of a separate server, then stops that server. A stop
 * waits for the background tasks, so every mail that `call` caused has been sent, or has
 * failed, when the promise resolves.
 */
export async function withDrainedServer<Result>(
  world: World,
  environment: Record<string, string>,
  call: (client: Client) => Promise<Result>,
): Promise<Result> {
  const { service, url } = await world.startAnotherServer(environment);
  const result = await call(world.anonymous.at(url));
  await service.stop();
  return result;
}
