import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type pg from 'pg';
import { databaseUrl } from '../../../control/server-urls.ts';
import { OperatorError } from '../../../operator-error.ts';
import { withConnection } from '../../../postgres/connection.ts';
import { sqlState } from '../../../postgres/database-error.ts';
import { type BaseBackup, type BaseFolder, baseFolder, findBaseBackup } from './base-folder.ts';
import { withBaseLease } from './base-leases.ts';
import { recoverBeforeDrop } from './recover-before-drop.ts';
import { makeScratchData, removeLeftovers, scratchName } from './scratch-folder.ts';
import { type ScratchServer, withRecoveredServer } from './scratch-server.ts';
import type { RecoveryTarget } from './scratch-settings.ts';

/** A database of a server, as it was at a moment. */
export interface DatabaseAtMoment {
  /** The folder of `BASE_BACKUP_DIR`. */
  readonly root: string;
  readonly server: string;
  /** The URL of the server, with the rights of the operator. */
  readonly url: string;
  /** Its name at the moment. */
  readonly database: string;
  /** Names that it may have had before. */
  readonly formerNames: readonly string[];
  readonly moment: Date;
  /** The moment, with its zone and to the microsecond. */
  readonly at: string;
  /** Called at the beginning of each step, with its name. */
  readonly onStep: (step: string) => void;
}

/**
 * Recovers one database of a server as it was at a moment, on a scratch server, and runs `work` on it. Every
 * transaction that was committed by then is there, and no later one. No other command removes what it reads meanwhile.
 * @throws {OperatorError} when there is no base backup or write-ahead log for the moment, or the server did not have
 *   the database then
 */
export async function withRecoveredDatabase<T>(
  wanted: DatabaseAtMoment,
  work: (from: pg.Client) => Promise<T>,
): Promise<T> {
  const { root, server, moment } = wanted;
  const folder = baseFolder(root, server);
  await removeLeftovers(folder);
  const choose = () => findBaseBackup(folder, server, moment);
  return withBaseLease(folder, choose, base => recoverFrom(folder, base, wanted, work));
}

async function recoverFrom<T>(
  folder: BaseFolder,
  base: BaseBackup,
  { server, url, database, formerNames, at, onStep }: DatabaseAtMoment,
  work: (from: pg.Client) => Promise<T>,
): Promise<T> {
  const oid = await finishWriteAheadLog(url, database, base);
  const wanted = wantedDatabases(base, [database, ...formerNames], oid);
  const recover = async <R>(until: RecoveryTarget, use: (recovered: ScratchServer) => Promise<R>): Promise<R> => {
    const scratch = folder.scratch(scratchName());
    onStep(`preparing the files of base backup ${base.id}`);
    await mkdir(scratch, { mode: 0o700 });
    await makeScratchData(folder, base, wanted, join(scratch, 'data'));
    onStep(`replaying the write-ahead log until ${at}`);
    return withRecoveredServer({ base, folder: scratch, until }, use);
  };
  const use = (recovered: ScratchServer): Promise<T> =>
    recovered.connect(database, work).catch(error => {
      if (sqlState(error) !== '3D000') throw error;
      throw new OperatorError(`Server ${server} had no database ${database} at ${at}`);
    });
  const first = await recover({ time: at.replace('Z', '+00') }, async recovered =>
    (await isDropped(recovered, database)) ? { log: await recovered.log() } : { result: await use(recovered) },
  );
  if ('result' in first) return first.result;
  return recoverBeforeDrop(first.log, recover, async recovered => {
    if (!(await isDropped(recovered, database))) return use(recovered);
    throw new OperatorError(`Database ${database} of server ${server} accepted no connections at ${at}`);
  });
}

async function isDropped(recovered: ScratchServer, database: string): Promise<boolean> {
  return recovered
    .connect(database, async () => false)
    .catch(error => {
      if (sqlState(error) === '55000') return true;
      if (sqlState(error) === '3D000') return false;
      throw error;
    });
}

/**
 * Lets the server write a transaction that is later than the moment, and everything before it, to its files: a recovery
 * must find one to know that it has all earlier ones. A server that is gone has its last transactions in its folder.
 * @returns the OID of the database, if it still exists
 */
async function finishWriteAheadLog(url: string, database: string, base: BaseBackup): Promise<number | undefined> {
  return withConnection(databaseUrl(url, 'postgres'), async client => {
    const { rows } = await client.query<{ id: string; oid: number | null }>(
      `select (select system_identifier::text from pg_control_system()) as id,
              (select oid::int8::float8 from pg_database where datname = $1) as oid`,
      [database],
    );
    if (rows[0]?.id !== base.systemIdentifier) return undefined;
    await client.query('select pg_current_xact_id()');
    await client.query('select pg_switch_wal()');
    return rows[0].oid ?? undefined;
  }).catch(() => undefined);
}

/**
 * Returns the OIDs that the database may have in the base backup. There are none if it was made later: the write-ahead
 * log has all of it.
 */
function wantedDatabases(base: BaseBackup, names: readonly string[], oid: number | undefined): Set<number> {
  const known = base.databases.filter(({ name }) => names.includes(name)).map(found => found.oid);
  return new Set(oid === undefined ? known : [...known, oid]);
}
