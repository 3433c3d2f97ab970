import { Server } from '../../src/control/control-entities.ts';
import { insertDatabase } from '../../src/operator/databases/create-database.ts';
import { withConnection } from '../../src/postgres/connection.ts';
import type { World } from './world.ts';

/**
 * Records an unfinished warm database on the server of the suite. `pool fill` there would drop the templates of tests
 * that run at the same time: a template is locked in the control database of its world only.
 */
export async function insertWarm({ control, installation }: World): Promise<void> {
  const server = await control.em.fork().findOneOrFail(Server, { name: 'default' });
  await withConnection(installation.controlUrl, client => insertDatabase(client, { server, origin: 'template' }));
}
