import type { Statements } from '../../postgres/statements.ts';

/** Reads the evidence of the tenant databases in which nothing was wrong, by the id of the tenant. */
export async function readCheckedDatabases(control: Statements): Promise<Map<number, string>> {
  const rows = await control.execute<{ tenant: string; evidence: string }[]>(
    'select tenant_id::text as tenant, evidence from checked_databases',
  );
  return new Map(rows.map(({ tenant, evidence }) => [Number(tenant), evidence]));
}

/**
 * Records the result of checks inside tenant databases.
 * @param healthy evidence of the databases in which nothing was wrong, by the id of the tenant
 * @param others ids of the other tenants whose databases were checked
 */
export async function recordCheckedDatabases(
  control: Statements,
  healthy: ReadonlyMap<number, string>,
  others: readonly number[],
): Promise<void> {
  if (others.length > 0)
    await control.execute('delete from checked_databases where tenant_id = any (?::bigint[])', [
      `{${others.join(',')}}`,
    ]);
  if (healthy.size === 0) return;
  // A tenant may have been purged meanwhile.
  await control.execute(
    `insert into checked_databases (tenant_id, evidence)
     select id, evidence from unnest(?::bigint[], ?::text[]) as checked (tenant, evidence) join tenants on id = tenant
     on conflict (tenant_id) do update set evidence = excluded.evidence, checked_at = now()`,
    [`{${[...healthy.keys()].join(',')}}`, `{${[...healthy.values()].join(',')}}`],
  );
}
