import { Server } from '../../control/control-entities.ts';
import type { Installation } from '../../control/installation.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { listServers, noSuchServer, roomiest } from './read-servers.ts';

/** @throws {OperatorError} when there is no server with this name */
export async function findServer({ control }: Installation, name: string): Promise<Server> {
  const { em } = await control();
  const server = await em.fork().findOne(Server, { name });
  if (!server) throw noSuchServer(name);
  return server;
}

/**
 * Chooses the server of a new tenant: the named one, otherwise the one with the most room.
 * @throws {OperatorError} when there is no server with this name, or none has room
 */
export async function placeTenant(
  installation: Installation,
  name: string | undefined,
): Promise<Server> {
  const em = (await installation.control()).em.fork();
  if (name !== undefined) return findServer(installation, name);
  const best = roomiest(await listServers(installation));
  if (!best) {
    throw new OperatorError(
      'No server has room for another tenant. Add one: bin/backoffice server add <name> < ' +
        'url-file. Or raise a capacity: bin/backoffice server set <name> --capacity <n>',
    );
  }
  return em.findOneOrFail(Server, { name: best.name });
}
