import { Server, type Tenant } from '../../../control/fleet-entities.ts';
import type { Installation } from '../../../installation.ts';
import { OperatorError } from '../../../operator-error.ts';
import type { EarlierData } from '../../databases/fill-database.ts';
import { inSnapshot } from '../../provisioning/copy-data.ts';
import { readSchemaState } from '../../schema/schema-steps.ts';
import { identityTables } from '../../tenant-tables.ts';
import { copyAll } from '../recovered/copy-all.ts';
import { parseMoment } from './parse-moment.ts';
import { withRecoveredDatabase } from './recover-database.ts';

export interface MomentOptions {
  /** The folder of `BASE_BACKUP_DIR`. */
  root: string;
  /** The moment, as the operator wrote it, with a zone. */
  at: string;
  /** Called at the beginning of each step, with its name. */
  onStep?: (step: string) => void;
}

/**
 * Runs `restore` on the data that a tenant had at a moment: a scratch server recovers a base backup with the files of
 * this tenant only, all others are served meanwhile. Every transaction that was committed by then is there, and no
 * later one.
 * @throws {OperatorError} when there is no base backup or write-ahead log for the moment
 */
export async function restoreToMoment<T>(
  installation: Installation,
  source: Tenant,
  { root, at, onStep = () => {} }: MomentOptions,
  restore: (data: EarlierData) => Promise<T>,
): Promise<T> {
  const moment = parseMoment(at);
  if (moment < source.createdAt)
    throw new OperatorError(`${source.slug} did not exist then: it was made at ${source.createdAt.toISOString()}`);
  const { server, database } = await placeAt(installation, source, at);
  const url = installation.servers.adminUrl(server);
  const formerNames = [`${server.prefix}_warm_${source.id}`]; // earlier builds renamed a warm database
  const wanted = { root, server: server.name, url, database, formerNames, moment, at, onStep };
  return withRecoveredDatabase(wanted, async from => {
    const { guid, applied } = await readSchemaState(from);
    if (guid !== source.guid) throw new OperatorError(`Database ${database} was another tenant's then`);
    onStep(`copying ${source.slug} of ${at}`);
    return restore({
      description: at,
      schemaVersion: applied.at(-1) ?? '',
      fill: target => inSnapshot(from, () => copyAll(from, target, identityTables)),
    });
  });
}

interface Place {
  server: Server;
  database: string;
}

/** Returns where the database of a tenant was at a moment. */
async function placeAt({ control, statements }: Installation, tenant: Tenant, at: string): Promise<Place> {
  const [former] = await statements.execute<{ server: number; database: string }[]>(
    `select server_id as server, database_name as database from tenant_databases
      where tenant_id = ? and current_during @> ?::timestamptz`,
    [tenant.id, at],
  );
  if (!former) return { server: tenant.server, database: tenant.databaseName };
  const server = await control.em.fork().findOneOrFail(Server, { id: former.server });
  return { server, database: former.database };
}
