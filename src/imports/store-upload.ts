import { createHash } from 'node:crypto';
import { problem } from '../errors.ts';
import type { ReadUpload } from '../http/route.ts';
import type { RowValues } from '../postgres/statement.ts';
import { findRepeatable, keyInProgress } from '../tenancy/repeatable-change.ts';
import type { RequestContext } from '../tenancy/request-context.ts';
import { requireOwnIds } from './import-ids.ts';
import type { ImportQueue, QueuedImport } from './import-queue.ts';
import {
  deleteUpload,
  type ImportOrder,
  insertChunk,
  insertImport,
  queueImport,
  selectImport,
} from './import-table.ts';

/** Bytes of one row of `import_chunks`. */
const chunkBytes = 256 * 1024;

/** A request that sends a file. */
interface Upload {
  readonly order: ImportOrder;
  readonly readUpload: ReadUpload;
  /** Equal requests of a user with the same key make one import. */
  readonly idempotencyKey: string | undefined;
}

/**
 * Stores the body in the tenant's database, in pieces, and queues the import when it is complete: then it survives the
 * end of this process.
 * @returns the import, as the API shows it; with a key that was used before, the import of the earlier request
 * @throws {Problem} `limit_reached` while the tenant has 10 unfinished imports; `idempotency_in_progress`,
 *   `idempotency_key_reused`
 */
export async function storeUpload(queue: ImportQueue, context: RequestContext, upload: Upload): Promise<RowValues> {
  const { order, idempotencyKey } = upload;
  const { userId } = context.caller;
  if (idempotencyKey !== undefined && (await context.read(findRepeatable(userId, idempotencyKey))).length > 0)
    return findEarlier(context, upload, idempotencyKey);

  const queued = await queue.begin({ tenantId: context.tenant.id, userId, idempotencyKey });
  if (!queued) throw keyInProgress({ Connection: 'close' });
  let importId: number | undefined;
  let isQueued = false;
  try {
    const [inserted] = await context.write(async () => insertImport(order, context.actor, context.caller));
    if (!inserted) throw problem('limit_reached', { detail: 'The tenant has 10 imports that have not ended.' });
    importId = inserted.id as number;
    if (!(await queue.attach(queued, importId))) throw problem('unavailable');
    const stored = await receiveFile(context, importId, upload);
    isQueued = !context.repeatable?.isReplayed;
    return stored;
  } finally {
    const settled = isQueued ? queue.release(queued) : discard(queue, context, queued, importId);
    await settled.catch(() => {}); // a process that leases the import after the lease finds its state
  }
}

/** Reads the file again, and returns the import that the earlier request with the key made. */
async function findEarlier(
  context: RequestContext,
  { order, readUpload }: Upload,
  idempotencyKey: string,
): Promise<RowValues> {
  const hash = createHash('sha256');
  await readUpload(async piece => {
    hash.update(piece);
  });
  context.makeRepeatable(idempotencyKey, [order, hash.digest('hex')]);
  const [stored] = await context.write(async () => {
    throw problem('unavailable'); // the key has expired since
  });
  return stored as RowValues;
}

/** Of two files that are sent with one key at the same time, the one that arrives later is not queued. */
async function receiveFile(
  context: RequestContext,
  id: number,
  { order, readUpload, idempotencyKey }: Upload,
): Promise<RowValues> {
  const hash = createHash('sha256');
  let pending: Buffer[] = [];
  let length = 0;
  let number = 0;
  const flush = async (): Promise<void> => {
    if (length === 0) return;
    const bytes = Buffer.concat(pending);
    if (number === 0) await requireOwnIds(order, bytes);
    pending = [];
    length = 0;
    number++;
    const [chunk] = await context.write(async () => insertChunk(id, number, bytes));
    if (!chunk) throw problem('unavailable');
  };
  await readUpload(async piece => {
    hash.update(piece);
    pending.push(piece);
    length += piece.length;
    if (length >= chunkBytes) await flush();
  });
  await flush();
  if (idempotencyKey !== undefined) context.makeRepeatable(idempotencyKey, [order, hash.digest('hex')]);
  const [stored] = await context.write(async transaction => {
    const [queued] = await transaction.query(queueImport(id));
    if (!queued) throw problem('unavailable');
    return selectImport(id);
  });
  return stored as RowValues;
}

/** Deletes an import that this request has not queued. If its commit has taken effect nevertheless, the import runs. */
async function discard(
  queue: ImportQueue,
  context: RequestContext,
  queued: QueuedImport,
  importId: number | undefined,
): Promise<void> {
  const isDeleted =
    importId === undefined || (await context.write(async () => deleteUpload(importId), undefined, false)).length > 0;
  await (isDeleted ? queue.remove(queued) : queue.release(queued));
}
