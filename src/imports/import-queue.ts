import { type ControlDatabase, queryControl } from '../control/database.ts';
import { createLeases, isLeased, leaseTime } from '../control/leases.ts';

/** An entry of the queue. */
export interface QueuedImport {
  /** Of the entry. */
  readonly id: number;
}

/** An import that this process may run. */
export interface LeasedImport extends QueuedImport {
  readonly tenantGuid: string;
  /** Null when the process that received the file ended before it inserted the import. */
  readonly importId: number | null;
  /** Processes whose lease ended while they ran the import: probably because they were killed. */
  readonly lostRuns: number;
}

/** Who sends a file. */
interface Sender {
  readonly tenantId: number;
  readonly userId: number;
  readonly idempotencyKey: string | undefined;
}

/**
 * The unfinished imports of all tenants, in the control database. A process holds a lease for each import whose file it
 * receives or that it runs. When the lease of a process ends, another one may lease the import.
 *
 * Leases only save attempts in vain. That an import is applied once follows from the lock and the state in the tenant's
 * database, so it does not depend on a clock.
 */
export type ImportQueue = ReturnType<typeof createImportQueue>;

const beginText = `
  insert into unfinished_imports (tenant_id, user_id, idempotency_key, holder, leased_until)
  values ($1, $2, $3, $4, now() + ${leaseTime})
      on conflict do nothing returning id::float8 as id`;
const attachText = 'update unfinished_imports set import_id = $2 where id = $1 returning id';
const releaseText = `
  update unfinished_imports set arrived_at = now(), holder = null, leased_until = now() where id = $1`;
const restoreText = `
  insert into unfinished_imports (tenant_id, import_id, arrived_at, leased_until) values ($1, $2, now(), now())
      on conflict do nothing returning id`;
const leaseText = `
  with next as (
    select q.id, t.guid, q.lost_runs + (q.arrived_at is not null and q.holder is not null)::integer as lost_runs
      from unfinished_imports q join tenants t on t.id = q.tenant_id
     where t.status = 'active' and not ${isLeased('q')}
       and (q.arrived_at is null
         or not exists (select from unfinished_imports o
                         where o.tenant_id = q.tenant_id and o.arrived_at is not null and ${isLeased('o')}))
     order by q.created_at limit 1 for update of q skip locked)
  update unfinished_imports q
     set holder = $1, leased_until = now() + ${leaseTime}, lost_runs = next.lost_runs, arrived_at = coalesce(q.arrived_at, now())
    from next where q.id = next.id and (next.lost_runs = 0 or $2 = 0)
  returning q.id::float8 as id, q.import_id::float8 as "importId", next.guid as "tenantGuid", q.lost_runs as "lostRuns"`;
const postponeText = `
  update unfinished_imports set holder = null, leased_until = now() + $3 * interval '1 millisecond'
   where id = $1 and holder = $2`;
const removeText = 'delete from unfinished_imports where id = $1';

/** @param holder identifies this process */
export function createImportQueue(control: ControlDatabase, holder: string) {
  const leases = createLeases(control, 'unfinished_imports', holder);
  const query = <Row extends object>(name: string, text: string, values: unknown[]) =>
    queryControl<Row>(control, `imports_${name}`, text, values);
  const add = (leased: QueuedImport | undefined, sentAt: number): void => {
    if (leased) leases.hold(leased.id, sentAt);
  };
  const end = async (name: string, text: string, { id }: QueuedImport, ...values: unknown[]): Promise<void> => {
    leases.forget(id);
    await query(name, text, [id, ...values]);
  };
  return {
    /**
     * Adds an entry for a file that begins to arrive, and leases it.
     * @returns undefined when another request of the user with the same key sends a file, or a process was killed that
     *   received one and its entry has not been leased yet
     */
    begin: async ({ tenantId, userId, idempotencyKey }: Sender): Promise<QueuedImport | undefined> => {
      const values = [tenantId, userId, idempotencyKey, holder];
      const sentAt = performance.now();
      const [begun] = await query<QueuedImport>('begin', beginText, values);
      add(begun, sentAt);
      return begun;
    },
    /**
     * Stores which import the file of an entry is for.
     * @returns false when another process has leased the entry, because its lease had ended, and removed it
     */
    attach: async ({ id }: QueuedImport, importId: number) =>
      (await query('attach', attachText, [id, importId])).length > 0,
    /** Gives an import whose file has arrived to the first process that leases it. */
    release: (queued: QueuedImport) => end('release', releaseText, queued),
    /**
     * Adds an import whose file has arrived: the queue lacks it when one of the databases was restored.
     * @returns false when the queue has it already
     */
    restore: async (tenantId: number, importId: number) =>
      (await query('restore', restoreText, [tenantId, importId])).length > 0,
    /**
     * Leases the oldest entry that no process holds, of an active tenant of which no import is running. The file may
     * not have arrived. An import with lost runs, which may be the reason of their end, runs alone in its process: it
     * is not leased while others run, and newer ones wait for it.
     * @param running the imports that this process runs
     */
    lease: async (running: number): Promise<LeasedImport | undefined> => {
      const sentAt = performance.now();
      const [leased] = await query<LeasedImport>('lease', leaseText, [holder, running]);
      add(leased, sentAt);
      return leased;
    },
    /** Gives a leased import back: it can be leased again after `afterMs` milliseconds. */
    postpone: (queued: QueuedImport, afterMs: number) => end('postpone', postponeText, queued, holder, afterMs),
    /** Removes an import that has ended. */
    remove: (queued: QueuedImport) => end('remove', removeText, queued),
    renew: leases.renew,
  };
}
