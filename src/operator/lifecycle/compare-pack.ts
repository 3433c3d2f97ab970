import type pg from 'pg';
import { camelCase, snakeCase } from '../../lib/runtime/casing.ts';
import type { Pack, PackRow } from './read-pack.ts';

/**
 * `missing`: the tenant never had the row. `same`, `changed`: the tenant has it as in the pack,
 * or with other values. `deleted`: the tenant deleted it, marked it as deleted, or gave it
 * another code.
 */
export type RowState = 'missing' | 'same' | 'changed' | 'deleted';

/** A row of a pack, compared with the tenant's. */
export interface ComparedRow {
  readonly code: string;
  readonly state: RowState;
  readonly row: PackRow;
  /** The fields that differ: values of the pack and of the tenant. */
  readonly differences: Readonly<Record<string, { pack: unknown; tenant: unknown }>>;
}

/** Returns the column of a field of the API. */
export const columnOf = (field: string): string => snakeCase(camelCase(field));

/**
 * Compares the rows of a pack with those of a tenant. Codes are compared as the service does,
 * in any letter case.
 */
export async function comparePack(client: pg.ClientBase, pack: Pack): Promise<ComparedRow[]> {
  const { table, resource, key, rows } = pack;
  const column = columnOf(key);
  const { rows: found } = await client.query<{
    stored: Record<string, unknown> | null;
    existed: boolean;
  }>(
    `select to_jsonb(t) as stored, code_key(p.code) in (
              select code_key(before ->> '${column}') from audit_log where resource = $2 and before is not null) as existed
       from unnest($1::text[]) with ordinality as p(code, position)
       left join ${table} t on code_key(t.${column}) = code_key(p.code)
      order by p.position`,
    [rows.map(row => row[key]), resource],
  );

  return rows.map((row, index) => {
    const { stored = null, existed = false } = found[index] ?? {};
    return { code: String(row[key]), row, ...compareRow(row, stored, existed) };
  });
}

function compareRow(row: PackRow, stored: Record<string, unknown> | null, existed: boolean) {
  if (!stored) {
    return { state: existed ? ('deleted' as const) : ('missing' as const), differences: {} };
  }
  const differing = Object.keys(row).filter(field => stored[columnOf(field)] !== row[field]);
  const differences = Object.fromEntries(
    differing.map(field => [field, { pack: row[field], tenant: stored[columnOf(field)] }]),
  );
  if (stored.is_deleted === true) return { state: 'deleted' as const, differences };
  return { state: differing.length > 0 ? ('changed' as const) : ('same' as const), differences };
}
