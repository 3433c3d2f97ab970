import { problem } from '../../lib/problems.ts';
import type { ResourceDefinition } from '../resources/rest/resource-definition.ts';
import { type Columns, idFields, readColumns } from './import-columns.ts';
import { fileError, type ImportError, type ImportOrder } from './import-report.ts';
import { CsvError, readCsv } from './read-csv.ts';

const maxRows = 10_000;

/**
 * Reads a file before anything is locked or written: its header first, then the number of its
 * rows.
 * @returns the errors of a file that is not CSV, or has no header, or one with wrong columns
 * @throws {Problem} `validation_failed` when the file has ids, and the order does not say that
 *   they are the tenant's own: with ids of another tenant, 10 EUR would become 10 JPY;
 *   `payload_too_large` when it has more than 10,000 rows
 */
export async function checkFile(
  order: ImportOrder,
  resource: ResourceDefinition,
  pieces: readonly Buffer[],
): Promise<readonly ImportError[]> {
  let columns: Columns | undefined;
  let rows = 0;
  const withIds = new Set<string>();

  try {
    for await (const record of readCsv(pieces)) {
      if (!columns) {
        const read = readColumns(resource, record);
        if (Array.isArray(read)) return read;
        columns = read;
        continue;
      }

      rows++;
      if (rows > maxRows) throw tooManyRows();
      if (order.ids === 'own') continue;
      for (const field of idFields(columns, record, order.mode)) withIds.add(field);
    }
  } catch (error) {
    if (!(error instanceof CsvError)) throw error;
    return [fileError('wrong_format', error.message, error)];
  }

  requireNoIds([...withIds]);
  return columns ? [] : [fileError('required', 'the file has no header')];
}

function requireNoIds(fields: readonly string[]): void {
  if (fields.length === 0) return;

  throw problem('validation_failed', {
    detail:
      `The file has ids, which mean something only in the tenant that gave them (${fields.join(', ')}). ` +
      'Send ids=own if this tenant gave them; otherwise leave these columns out.',
    errors: { ids: [{ message: 'must be own for a file with ids', code: 'required' }] },
  });
}

function tooManyRows() {
  return problem('payload_too_large', {
    detail: 'An import takes at most 10,000 rows: divide the file, and send the parts.',
  });
}
