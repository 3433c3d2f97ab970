import { setTimeout as sleep } from 'node:timers/promises';
import { Server, type Tenant } from '../../../control/control-entities.ts';
import type { Installation } from '../../../control/installation.ts';
import { databaseUrl } from '../../../control/server-urls.ts';
import { readConfig } from '../../../lib/config/config.ts';
import { OperatorError } from '../../../lib/log/operator-error.ts';
import { withConnection } from '../../../lib/postgres/connection.ts';
import type { EarlierData } from '../../databases/fill-database.ts';
import { parseMoment } from './parse-moment.ts';
import { restoreRecovered } from './recovered-tenant.ts';
import { listMoments, withRecoveryCommand } from './recovery-command.ts';

interface MomentOptions {
  /** The moment, as the operator wrote it, with a zone. */
  at: string;
  /** Called at the beginning of each step, with its name. */
  onStep: (step: string) => void;
}

/**
 * Runs `restore` on the data that a tenant had at a moment: `RECOVERY_COMMAND` recovers the
 * server that the tenant was on to that moment. The data has every transaction that was
 * committed by then, and no later one.
 * @throws {OperatorError} with the reason of the command, when the moment cannot be had
 */
export async function restoreToMoment<T>(
  installation: Installation,
  source: Tenant,
  { at, onStep }: MomentOptions,
  restore: (data: EarlierData) => Promise<T>,
): Promise<T> {
  const { moment, program } = requireMoment(source, at);
  const { server, database } = await placeAt(installation, source, at);
  onStep(`archiving the write-ahead log of ${server.name}`);
  await archiveUntilNow(installation.servers.adminUrl(server));
  onStep(`recovering ${server.name} of ${at}`);

  return withRecoveryCommand(program, [server.name, database, moment.text], url => {
    return restoreRecovered(
      source,
      { url, names: [database], at: moment.text, description: at, onStep },
      restore,
    );
  });
}

/**
 * @throws {OperatorError} when the text is no moment, the moment is before the tenant was made,
 *   or `RECOVERY_COMMAND` is not set
 */
export function requireMoment(source: Tenant, at: string) {
  const moment = parseMoment(at);
  const program = recoveryCommand();
  if (moment.date < source.createdAt) {
    throw new OperatorError(
      `${source.slug} did not exist then: it was made at ${source.createdAt.toISOString()}`,
    );
  }
  return { moment, program };
}

interface Place {
  server: Server;
  database: string;
}

/** Returns the server and the database of a tenant at a moment. */
async function placeAt(
  { control, statements }: Installation,
  tenant: Tenant,
  at: string,
): Promise<Place> {
  const [former] = await statements.execute<{ server: number; database: string }[]>(
    `select server_id as server, database_name as database from tenant_databases
      where tenant_id = ? and current_during @> ?::timestamptz`,
    [tenant.id, at],
  );
  if (!former) return { server: tenant.server, database: tenant.databaseName };
  const server = await (await control()).em.fork().findOneOrFail(Server, { id: former.server });
  return { server, database: former.database };
}

/** Moments of a server, from the first to the last one. */
export interface MomentRange {
  server: string;
  from: string;
  until: string;
}

/**
 * Asks `RECOVERY_COMMAND` for the moments to which the present and former servers of a tenant
 * can be recovered.
 * @throws {OperatorError} with the reason of the command, when it knows none
 */
export async function readMoments(
  { statements }: Installation,
  { id }: Tenant,
): Promise<MomentRange[]> {
  const program = recoveryCommand();
  const servers = await statements.execute<{ name: string }[]>(
    `select name from servers s
      where exists (select from tenant_databases where tenant_id = ? and server_id = s.id
                       and (state = 'current' or current_during <> '{}')) order by 1`,
    [id],
  );

  const ranges: MomentRange[] = [];
  for (const { name: server } of servers) {
    for (const line of await listMoments(program, server)) {
      const [from = '', until = ''] = line.split(' ');
      if (Number.isNaN(Date.parse(from)) || Number.isNaN(Date.parse(until))) {
        throw new OperatorError(
          `RECOVERY_COMMAND --list ${server} has printed a line that is not two times`,
        );
      }
      ranges.push({ server, from, until });
    }
  }

  return ranges;
}

/**
 * Returns the path of the program.
 * @throws {OperatorError} when it is not set
 */
function recoveryCommand(): string {
  const command = readConfig().recoveryCommand;
  if (command !== undefined) return command;
  throw new OperatorError(
    'RECOVERY_COMMAND is not set, so no server can be recovered to a moment. Set it to the ' +
      'path of a program that does, such as one of deploy/recovery; or recover the server ' +
      'yourself, and give its URL: bin/backoffice restore <slug> --from < url-file',
  );
}

const maxArchiveMs = 60_000;
const pollMs = 50;

/**
 * Lets a server archive its write-ahead log up to a transaction that is later than every moment
 * in the past: a recovery must find one to know that it has all earlier ones. Waits for that
 * for 60 s at most. Nothing can be done for a server that is gone, that does not archive, or
 * whose login may not do it: the recovery shows whether its archive suffices.
 * @param url of the server, with the rights of the operator
 */
async function archiveUntilNow(url: string): Promise<void> {
  await withConnection(databaseUrl(url, 'postgres'), async client => {
    const { rows } = await client.query<{ mode: string }>(
      `select current_setting('archive_mode') as mode`,
    );
    if (rows[0]?.mode === 'off') return;

    await client.query('select pg_current_xact_id()');
    const { rows: switched } = await client.query<{ segment: string }>(
      'select pg_walfile_name(pg_switch_wal()) as segment',
    );
    for (
      const deadline = performance.now() + maxArchiveMs;
      performance.now() < deadline;
      await sleep(pollMs)
    ) {
      // The first 8 digits are the timeline, which a failover changes.
      const { rows: done } = await client.query<{ isArchived: boolean }>(
        `select substr(last_archived_wal, 9, 16) collate "C" >= substr($1, 9) as "isArchived" from pg_stat_archiver`,
        [switched[0]?.segment],
      );
      if (done[0]?.isArchived) return;
    }
  }).catch(() => {});
}
