import type { Queryable } from '../../postgres/shared-connection.ts';
import type { TenantResult } from './migration-outcomes.ts';

/** The new schema of a tenant's database. */
interface RecordedSchema {
  version: string;
  compatibleFrom: string | null;
  fingerprint: string | undefined;
}

/** Writes the outcomes of the tenants of one run. */
export interface OutcomeRecorder {
  /** Marks a tenant as running, soon. */
  begin(tenant: number): void;
  /**
   * Records the result of a tenant. Resolves when it is stored.
   * @param schema written in the same transaction, if it has changed
   */
  record(tenant: number, result: TenantResult, schema?: RecordedSchema): Promise<void>;
}

interface Entry {
  tenant: number;
  result: TenantResult;
  schema: RecordedSchema | undefined;
}

/** Outcomes wait for others at most this long. */
const gatherMs = 20;

/**
 * Collects outcomes and writes them together: a commit costs a write to the disk, whatever it contains.
 * @param batch the number of results that are written without waiting for more
 */
export function createOutcomeRecorder(control: Queryable, run: number, batch: number): OutcomeRecorder {
  let begun = new Set<number>();
  let entries: Entry[] = [];
  let writing: Promise<void> | undefined;
  let next: Promise<void> | undefined;
  let stopGathering: (() => void) | undefined;

  const gather = (): Promise<void> =>
    new Promise(resolve => {
      const timer = setTimeout(resolve, gatherMs);
      stopGathering = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  const write = async (): Promise<void> => {
    const [running, ended] = [begun, entries];
    [begun, entries, next] = [new Set(), [], undefined];
    for (const { tenant } of ended) running.delete(tenant);
    writing = writeOutcomes(control, run, [...running], ended);
    await writing.finally(() => {
      writing = undefined;
    });
  };
  /** Writes what is collected, after the write that is in progress. */
  const schedule = (): Promise<void> => {
    next ??= Promise.all([gather(), writing?.catch(() => {})]).then(write);
    return next;
  };
  return {
    begin: tenant => {
      begun.add(tenant);
      schedule().catch(() => {}); // `record` writes the tenant again
    },
    record: (tenant, result, schema) => {
      entries.push({ tenant, result, schema });
      const stored = schedule();
      if (entries.length >= batch) stopGathering?.();
      return stored;
    },
  };
}

async function writeOutcomes(
  control: Queryable,
  run: number,
  running: readonly number[],
  ended: readonly Entry[],
): Promise<void> {
  if (running.length + ended.length === 0) return;
  await control.query(
    `with ended as (
       select * from json_to_recordset($3) as e (tenant bigint, state text, "from" text, "to" text, ms integer,
         error text, version text, "compatibleFrom" text, fingerprint text)
     ), changed as (
       update tenants set schema_version = version, schema_fingerprint = fingerprint,
              compatible_from = "compatibleFrom", updated_at = now()
         from ended where id = tenant and version is not null
     ), begun as (
       update migration_outcomes set state = 'running', started_at = now()
        where run_id = $1 and tenant_id = any ($2::bigint[]) and state = 'pending'
     )
     update migration_outcomes o
        set state = e.state, from_version = "from", to_version = "to", ms = e.ms, error = e.error, finished_at = now(),
            started_at = coalesce(started_at, now() - e.ms * interval '1 ms')
       from ended e where run_id = $1 and tenant_id = tenant`,
    [
      run,
      `{${running.join(',')}}`,
      JSON.stringify(ended.map(({ tenant, result, schema }) => ({ tenant, ...result, ...schema }))),
    ],
  );
}
