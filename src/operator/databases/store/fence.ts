import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { changeChannel, changeTopics } from '../../../control/change-topics.ts';
import { isRunning } from '../../../control/running-process.ts';
import { OperatorError } from '../../../lib/log/operator-error.ts';
import { inTransaction } from '../../../lib/postgres/in-transaction.ts';
import type { LockedTenant } from './database-store.ts';

const maxAnnounceMs = 10_000;
/** The time for which running requests may finish before their connections are ended. */
const maxDrainMs = 2_000;
const pollMs = 5;

interface Process {
  id: string;
  host: string;
  pid: number;
}

/**
 * Announces the fence of a tenant: each running process of the service prepares for it, and
 * confirms that.
 * @param control connected to the control database
 * @throws {OperatorError} when a running process does not confirm
 */
export async function announceFence(control: pg.Client, guid: string): Promise<void> {
  await control.query(liftFence, [guid]);
  await control.query('insert into tenant_fences (tenant_guid, id) values ($1, $2)', [
    guid,
    randomUUID(),
  ]);
  const missing = await waitForProcesses(control, guid, maxAnnounceMs);
  if (missing.length > 0) {
    throw new OperatorError(
      'These processes of the service did not confirm the fence within ' +
        `${maxAnnounceMs / 1_000} s: ${names(missing)}. End them, or find out why they do not ` +
        'receive changes of the control database; then run the command again',
    );
  }
}

/** True if a run has announced or closed the fence of a tenant, and none has lifted it. */
export async function hasFence(control: pg.Client, guid: string): Promise<boolean> {
  return (
    (await control.query('select from tenant_fences where tenant_guid = $1', [guid])).rowCount === 1
  );
}

/** Closes an announced fence: requests of the tenant wait from its commit on. */
export async function closeFence(control: pg.Client, guid: string): Promise<void> {
  await control.query(
    'update tenant_fences set closed = true, begun_at = clock_timestamp() where tenant_guid = $1',
    [guid],
  );
}

/** SQL that lifts a fence. Parameter: guid. */
const liftFence = 'delete from tenant_fences where tenant_guid = $1';

/**
 * Lets requests of a tenant go on, with the data that its database has now: lets every process
 * drop the cached responses of the tenant, and lifts its fence. A tenant that is being
 * provisioned is served from now on.
 */
export async function serveTenant(control: pg.Client, { id, guid }: LockedTenant): Promise<void> {
  await inTransaction(control, async () => {
    await control.query('select pg_notify($1, $2)', [
      changeChannel,
      `${changeTopics.responses}:${guid}`,
    ]);
    await control.query(liftFence, [guid]);
    await control.query(
      `update tenants set status = 'active', updated_at = now()
        where id = $1 and status = 'provisioning'
          and exists (select from tenant_databases d where tenant_id = $1 and d.state = 'current')`,
      [id],
    );
  });
}

/**
 * Waits until no running process of the service uses a connection of the tenant, whose fence is
 * closed, or until 2 s have passed: the connections are ended then.
 */
export async function drainProcesses(control: pg.Client, guid: string): Promise<void> {
  await waitForProcesses(control, guid, maxDrainMs);
}

/** @returns the running processes that have not confirmed the fence within `maxMs` */
async function waitForProcesses(
  control: pg.Client,
  guid: string,
  maxMs: number,
): Promise<Process[]> {
  for (const deadline = performance.now() + maxMs; ; await sleep(pollMs)) {
    const missing = await waitedFor(control, guid);
    if (missing.length === 0 || performance.now() > deadline) return missing;
  }
}

/**
 * Returns the running processes of the service that have not confirmed the fence of a tenant. A
 * process that does not run is stopped or gone: its connections are ended.
 */
async function waitedFor(control: pg.Client, guid: string): Promise<Process[]> {
  const { rows } = await control.query<Process>(
    `select id, host, pid from processes p
      where kind = 'service' and ${isRunning('p')}
        and not exists (
              select from tenant_fences f
                join fence_acknowledgements a on a.fence = f.id and a.closed = f.closed
               where tenant_guid = $1 and process = p.id)
      order by started_at, id`,
    [guid],
  );
  return rows;
}

function names(processes: readonly Process[]): string {
  return processes.map(({ host, pid }) => `process ${pid} on ${host}`).join(', ');
}
