import type { TenantTransaction } from '../connections/tenant-transaction.ts';
import type { Statement } from '../postgres/table-statements.ts';
import { rememberLookups } from '../resources/record.ts';
import type { ResourceDefinition } from '../resources/rest/resource-definition.ts';
import type { RequestContext } from '../tenancy/request-context.ts';
import { TableFullError } from './database-errors.ts';
import { applyBatch, keyOf, refuse } from './import-batch.ts';
import { type Columns, readColumns } from './import-columns.ts';
import {
  beginImport,
  finishImport,
  type ImportCounts,
  lockImport,
  type StoredImport,
  selectChunk,
} from './import-table.ts';
import { CsvError, type CsvRecord, readCsv } from './read-csv.ts';

/** An import that a process was killed in so often, or that the database refused so often, is rejected. */
const maxAttempts = 5;
const maxRows = 100_000;
/** Rows of one statement: less than the 1,000 that a table may exceed its maximum size by, see tenant migration 0016. */
const batchRows = 500;
/** Characters of the cells of one statement. */
const batchLength = 256 * 1024;

/**
 * Runs the unfinished imports of a tenant, the oldest first and one at a time over all processes. Each is one
 * transaction, with its result: a process that is killed leaves nothing of it but the file, and the next call runs it
 * again.
 * @param context of any request of the tenant
 */
export async function runImports(
  context: RequestContext,
  resources: ReadonlyMap<string, ResourceDefinition>,
): Promise<void> {
  for (;;) {
    const [begun] = await context.changeInBackground('{}', async () => beginImport());
    if (!begun) return;
    const stored = begun as unknown as StoredImport;
    const resource = resources.get(stored.resource);
    const cachedResource = resource?.isCached && !stored.dryRun ? resource.name : undefined;
    await context.changeInBackground(
      stored.actor,
      async transaction => {
        const [locked] = await transaction.query(lockImport(stored.id));
        if (!locked) return { name: 'import_nothing', text: 'select', values: [] };
        return runImport(transaction, stored, resource);
      },
      cachedResource,
    );
  }
}

/** Applies a file in the transaction. @returns the statement that stores the result */
async function runImport(
  transaction: TenantTransaction,
  stored: StoredImport,
  resource: ResourceDefinition | undefined,
): Promise<Statement> {
  const counts: ImportCounts = { rows: 0, created: 0, updated: 0, unchanged: 0, refused: 0, errors: [] };
  if (!resource || stored.attempts > maxAttempts) {
    counts.errors.push(fileError('internal_error', 'the service could not run the import'));
    return finishImport(stored.id, 'rejected', counts);
  }
  await transaction.query({ name: 'savepoint_import', text: 'savepoint import', values: [] });
  rememberLookups(transaction.em);
  const isApplied = await applyFile(transaction, stored, resource, counts);
  const isRejected = !isApplied || (stored.atomic && counts.refused > 0);
  if (isRejected || stored.dryRun)
    await transaction.query({ name: 'undo_import', text: 'rollback to savepoint import', values: [] });
  if (isRejected) Object.assign(counts, { created: 0, updated: 0 });
  return finishImport(stored.id, isRejected ? 'rejected' : 'done', counts);
}

/** @returns false when the file cannot be read, or has more rows than it or the table may have */
async function applyFile(
  transaction: TenantTransaction,
  order: StoredImport,
  resource: ResourceDefinition,
  counts: ImportCounts,
): Promise<boolean> {
  try {
    let columns: Columns | undefined;
    let batch: CsvRecord[] = [];
    let length = 0;
    let keys = new Set<string>();
    const flush = async (): Promise<void> => {
      if (columns && batch.length > 0) await applyBatch({ transaction, resource, columns, order, counts }, batch);
      batch = [];
      length = 0;
      keys = new Set();
    };
    for await (const record of readCsv(chunksOf(transaction, order.id))) {
      if (!columns) {
        const read = readColumns(resource, record.cells);
        if (Array.isArray(read)) {
          counts.errors.push(...read);
          return false;
        }
        columns = read;
        continue;
      }
      counts.rows++;
      if (counts.rows > maxRows) {
        counts.errors.push({ ...fileError('too_many', `a file has at most ${maxRows} rows`), Line: record.line });
        return false;
      }
      // A row that names the record of an earlier row finds it changed.
      const key = keyOf(columns, record).toLowerCase();
      if (keys.has(key) && key !== '') await flush();
      keys.add(key);
      batch.push(record);
      length += record.cells.reduce((sum, cell) => sum + cell.length, 0);
      if (batch.length >= batchRows || length >= batchLength) await flush();
    }
    await flush();
    if (!columns) {
      counts.errors.push(fileError('required', 'the file has no header'));
      return false;
    }
    return await fitsInto(transaction, resource, counts);
  } catch (error) {
    if (error instanceof CsvError) refuse(counts, [{ ...fileError('wrong_format', error.message), Line: error.line }]);
    else if (error instanceof TableFullError) refuse(counts, [tableFull]);
    else throw error;
    return false;
  }
}

const fileError = (Code: string, Reason: string) => ({ Line: 1, Field: '', Code, Reason });
const tableFull = fileError('limit_reached', 'the tenant has no room for so many of these records');

async function* chunksOf(transaction: TenantTransaction, id: number): AsyncGenerator<Buffer> {
  for (let number = 1; ; number++) {
    const [chunk] = await transaction.query(selectChunk(id, number));
    if (!chunk) return;
    yield chunk.bytes as Buffer;
  }
}

/**
 * Compares the table with its maximum size as it will be after the commit. The trigger of each statement did not see
 * rows that others have written since. Near the maximum, other writes wait until this transaction ends.
 */
async function fitsInto(
  transaction: TenantTransaction,
  { table }: ResourceDefinition,
  counts: ImportCounts,
): Promise<boolean> {
  if (counts.created === 0 && counts.updated === 0) return true;
  const [exceeded] = await transaction.query({ ...exceededLimits, values: [table.name] });
  if (!exceeded?.rows && !exceeded?.bytes) return true;
  counts.errors.push(tableFull);
  return false;
}

const exceededLimits = {
  name: 'exceeded_limits',
  text: `select e.rows, e.bytes from table_sizes t, exceeded_limits(t.table_name::regclass) e where t.table_name = $1`,
};
