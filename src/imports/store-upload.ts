import { problem } from '../errors.ts';
import type { ReadUpload } from '../http/route.ts';
import type { RequestContext } from '../tenancy/request-context.ts';
import { deleteImport, type ImportOrder, insertChunk, insertImport, queueImport } from './import-table.ts';

/** Bytes of one row of `import_chunks`. */
const chunkBytes = 256 * 1024;

/**
 * Stores the body in the tenant's database, in pieces, and queues the import when it is complete: then it survives the
 * end of this process.
 * @returns the id of the import
 * @throws {Problem} `limit_reached` while the tenant has 10 unfinished imports
 */
export async function storeUpload(
  context: RequestContext,
  order: ImportOrder,
  readUpload: ReadUpload,
): Promise<number> {
  const [inserted] = await context.write(async () => insertImport(order, context.actor));
  if (!inserted) throw problem('limit_reached', { detail: 'The tenant has 10 imports that have not ended.' });
  const id = inserted.id as number;
  try {
    let pending: Buffer[] = [];
    let length = 0;
    let number = 0;
    const flush = async (): Promise<void> => {
      if (length === 0) return;
      const bytes = Buffer.concat(pending);
      pending = [];
      length = 0;
      number++;
      await context.write(async () => insertChunk(id, number, bytes));
    };
    await readUpload(async piece => {
      pending.push(piece);
      length += piece.length;
      if (length >= chunkBytes) await flush();
    });
    await flush();
    await context.write(async () => queueImport(id));
    return id;
  } catch (error) {
    await context.write(async () => deleteImport(id)).catch(() => {}); // else a later import deletes it
    throw error;
  }
}
