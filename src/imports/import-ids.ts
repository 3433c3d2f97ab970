import { problem } from '../errors.ts';
import { idFields, readColumns } from './import-columns.ts';
import type { ImportOrder } from './import-table.ts';
import { importableResources } from './importable-resources.ts';
import { CsvError, readCsv } from './read-csv.ts';

/**
 * Reads the header of a file, which is in its first bytes, and refuses ids that may be another tenant's: there, 10 EUR
 * would become 10 JPY. A header that cannot be read passes, because the import reports what is wrong with it.
 * @throws {Problem} `validation_failed` when the file has ids, and the order does not say that they are the tenant's own
 */
export async function requireOwnIds(order: ImportOrder, firstBytes: Buffer): Promise<void> {
  const resource = importableResources.get(order.resource);
  if (order.ids === 'own' || !resource) return;

  const header = await readHeader(firstBytes);
  const columns = header && readColumns(resource, header);
  if (!columns || Array.isArray(columns)) return;

  const fields = idFields(resource, columns, order.mode);
  if (fields.length === 0) return;

  throw problem('validation_failed', {
    detail:
      `The file has ids, which mean something only in the tenant that gave them (${fields.join(', ')}). ` +
      'Send ids=own if this tenant gave them; otherwise leave these columns out.',
    errors: { ids: [{ message: 'must be own for a file with ids', code: 'required' }] },
    headers: { Connection: 'close' },
  });
}

async function readHeader(firstBytes: Buffer): Promise<readonly string[] | undefined> {
  const bytes = async function* () {
    yield firstBytes;
  };
  try {
    for await (const { cells } of readCsv(bytes())) return cells;
  } catch (error) {
    if (!(error instanceof CsvError)) throw error;
  }
  return undefined;
}
