import type { TenantTransaction } from '../../tenancy/connections/tenant-transaction.ts';
import { ReferredRecords } from '../resources/rest/references.ts';
import type { ResourceDefinition } from '../resources/rest/resource-definition.ts';
import { TableFullError } from './database-errors.ts';
import { addErrors, applyBatch, keyOf, refuse } from './import-batch.ts';
import { type Columns, readColumns } from './import-columns.ts';
import { fileError, type ImportCounts, type ImportOrder } from './import-report.ts';
import { CsvError, type CsvRecord, readCsv } from './read-csv.ts';

/**
 * Rows of one statement: less than the 1,000 that a table may exceed its maximum size by
 * (section 9 of the tenant schema).
 */
const batchRows = 100;
/** Cells of one statement, and their characters. */
const batchLength = 64 * 1024;

export interface FileImport {
  readonly transaction: TenantTransaction;
  readonly order: ImportOrder;
  readonly resource: ResourceDefinition;
  readonly pieces: readonly Buffer[];
  readonly counts: ImportCounts;
  /**
   * Called before each batch of rows, and when all are written. Throws when the import must not
   * go on.
   */
  readonly requireRights: () => Promise<void>;
}

/**
 * Applies the rows of a file, and counts them.
 * @returns false when the file cannot be read, or has more rows than the table may have;
 *   `counts.errors` then has the reason
 * @throws what `requireRights` throws
 */
export async function applyFile(file: FileImport): Promise<boolean> {
  const { transaction, order, resource, pieces, counts, requireRights } = file;

  try {
    let columns: Columns | undefined;
    const firstLines = new Map<string, number>();
    const referred = new ReferredRecords(resource.references ?? {});
    let batch: CsvRecord[] = [];
    let length = 0;

    const flush = async (): Promise<void> => {
      await requireRights();
      if (columns && batch.length > 0) {
        await applyBatch(
          { transaction, resource, columns, order, counts, firstLines, referred },
          batch,
        );
      }
      batch = [];
      length = 0;
    };

    for await (const record of readCsv(pieces)) {
      if (!columns) {
        const read = readColumns(resource, record);
        if (Array.isArray(read)) {
          addErrors(counts, read);
          return false;
        }
        columns = read;
        continue;
      }

      counts.rows++;
      const key = keyOf(columns, record).toLowerCase();
      if (!firstLines.has(key)) firstLines.set(key, record.line);

      batch.push(record);
      length += record.cells.reduce((sum, cell) => sum + cell.length, record.cells.length);
      if (batch.length >= batchRows || length >= batchLength) await flush();
    }

    await flush();
    if (!columns) {
      counts.errors.push(fileError('required', 'the file has no header'));
      return false;
    }

    if (!(await fitsInto(file))) return false;
    await requireRights();
    return true;
  } catch (error) {
    if (error instanceof CsvError) {
      refuse(counts, [fileError('wrong_format', error.message, error)]);
    } else if (error instanceof TableFullError) {
      refuse(counts, [tableFull]);
    } else {
      throw error;
    }
    return false;
  }
}

const tableFull = fileError('limit_reached', 'the tenant has no room for so many of these records');

/**
 * Compares the table with its maximum size as it will be after the commit. The trigger of each
 * statement did not see rows that others have written since. Near the maximum, other writes
 * wait until this transaction ends.
 */
async function fitsInto({ transaction, resource, counts }: FileImport): Promise<boolean> {
  if (counts.created === 0 && counts.updated === 0) return true;
  const [exceeded] = await transaction.query({ ...exceededLimits, values: [resource.table.name] });
  if (!exceeded?.rows && !exceeded?.bytes) return true;
  counts.errors.push(tableFull);
  return false;
}

const exceededLimits = {
  name: 'exceeded_limits',
  text: `select e.rows, e.bytes from table_sizes t, exceeded_limits(t.table_name::regclass) e where t.table_name = $1`,
};
