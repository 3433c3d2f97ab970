import { pathId } from '../../lib/http/route.ts';
import type { RowValues, Statement } from '../../lib/postgres/statement.ts';
import { snakeCase } from '../../lib/runtime/casing.ts';
import type { TenantTransaction } from '../../tenancy/connections/tenant-transaction.ts';
import type { ResourceDefinition } from '../resources/rest/resource-definition.ts';
import type { Columns } from './import-columns.ts';

/** The stored records that rows of a file name. */
export interface StoredRecords {
  find(key: string): RowValues | undefined;
}

/**
 * Locks and returns the records with these keys, which are codes or ids. Empty keys name none.
 */
export async function findStored(
  transaction: TenantTransaction,
  resource: ResourceDefinition,
  { keyField }: Columns,
  keys: readonly string[],
): Promise<StoredRecords> {
  const named = [...new Set(keys)].filter(key => key !== '');
  if (keyField === undefined || named.length === 0) return { find: () => undefined };
  return keyField === 'Id'
    ? findById(transaction, resource, named)
    : findByCode(transaction, resource, named);
}

async function findById(
  transaction: TenantTransaction,
  { table, key }: ResourceDefinition,
  keys: readonly string[],
): Promise<StoredRecords> {
  const max = 'id' in key ? key.id : 0;
  const ids = keys.map(text => pathId(text, max)).filter(id => id !== undefined);
  const rows = await transaction.query(table.selectForUpdate([['id = any(?)', ids]]));
  const byId = new Map(rows.map(row => [String(row.id), row]));
  return { find: text => byId.get(text) };
}

/** Codes are compared in any letter case, by the function of the unique index. */
async function findByCode(
  transaction: TenantTransaction,
  { table, unique = '' }: ResourceDefinition,
  keys: readonly string[],
): Promise<StoredRecords> {
  const condition = `code_key(${snakeCase(unique)}) = any(array(select code_key(code) from unnest(?::text[]) code))`;
  const rows = await transaction.query(table.selectForUpdate([[condition, keys]]));
  const stored = rows.map(row => String(row[unique]));
  const folded = await transaction.query({ ...foldCodes, values: [[...keys, ...stored]] });
  const keyOf = new Map(folded.map(({ code, key }) => [code, key]));
  const byKey = new Map(rows.map(row => [keyOf.get(String(row[unique])), row]));
  return { find: code => (code === '' ? undefined : byKey.get(keyOf.get(code) ?? '')) };
}

const foldCodes: Omit<Statement<{ code: string; key: string }>, 'values'> = {
  name: 'fold_codes',
  text: 'select code, code_key(code) as key from unnest($1::text[]) code',
};
