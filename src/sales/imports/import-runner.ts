import { createHash } from 'node:crypto';
import type { TenantRecord } from '../../control/records.ts';
import type { ReadUpload } from '../../lib/http/route.ts';
import type { Statement } from '../../lib/postgres/statement.ts';
import { type Problem, problem } from '../../lib/problems.ts';
import type { TenantTransaction } from '../../tenancy/connections/tenant-transaction.ts';
import type { RequestContext } from '../../tenancy/request-context.ts';
import type { ResourceDefinition } from '../resources/rest/resource-definition.ts';
import { applyFile } from './apply-file.ts';
import { checkFile } from './check-file.ts';
import { FileMemory } from './file-memory.ts';
import { tryLockImports } from './import-lock.ts';
import { type ImportOrder, type ImportReport, noCounts, reportOf } from './import-report.ts';

/**
 * Maximum time of an import from the end of its upload, in ms: less than the 25 s that a stop
 * of the process takes.
 */
export const importDeadlineMs = 20_000;
/** Maximum imports of this process at a time. */
const maxRunning = 4;

/** The connections of this process to one server. */
interface ServerConnections {
  /** Maximum open connections. */
  readonly max: number;
}

interface ImportRequest {
  readonly order: ImportOrder;
  readonly resource: ResourceDefinition;
  readonly readUpload: ReadUpload;
  readonly idempotencyKey: string | undefined;
}

/** Runs each import in its request, and bounds the number of imports in this process. */
export class ImportRunner {
  readonly #connectionsOf: (tenant: TenantRecord) => ServerConnections;
  readonly #memory = new FileMemory();
  /**
   * The running import of each tenant, by the guid: the server connections that it uses one of.
   */
  readonly #running = new Map<string, ServerConnections>();
  /** The time by which this process has ended, by `performance.now()`. */
  #stopsAt = Number.POSITIVE_INFINITY;

  constructor(connectionsOf: (tenant: TenantRecord) => ServerConnections) {
    this.#connectionsOf = connectionsOf;
  }

  /**
   * Announces that the process ends within `ms`: an import that may take longer does not begin.
   */
  stopWithin(ms: number): void {
    this.#stopsAt = performance.now() + ms;
  }

  /**
   * Receives a file, and applies it in one transaction.
   * @throws {Problem} `unavailable` while the tenant has another import, or the process too
   *   many, or is about to end; those of `checkFile`, of the upload, and of a caller who loses
   *   the rights meanwhile
   */
  async run(context: RequestContext, request: ImportRequest): Promise<ImportReport> {
    const { order, resource, readUpload } = request;
    const { tenant } = context;
    this.#requireFree(tenant); // before the file is sent

    const file = this.#memory.fileOf(tenant.guid);
    try {
      await readUpload(async piece => file.add(piece));
      const errors = await checkFile(order, resource, file.pieces);
      if (errors.length > 0) return reportOf(order, { ...noCounts(), errors: [...errors] }, false);

      return await this.#inTurn(tenant, () => apply(context, request, file.pieces));
    } finally {
      file.release();
    }
  }

  async #inTurn(tenant: TenantRecord, work: () => Promise<ImportReport>): Promise<ImportReport> {
    this.#requireFree(tenant);
    this.#running.set(tenant.guid, this.#connectionsOf(tenant));
    try {
      return await work();
    } finally {
      this.#running.delete(tenant.guid);
    }
  }

  /**
   * Refuses an import that could not begin now: at most half of the connections to a server
   * serve imports, and one always may, without which a process with a single connection would
   * run none.
   */
  #requireFree(tenant: TenantRecord): void {
    if (this.#stopsAt - performance.now() < importDeadlineMs) {
      throw busy('The process that has the request is stopping.');
    }
    if (this.#running.has(tenant.guid)) throw tenantBusy();

    const connections = this.#connectionsOf(tenant);
    const onServer = [...this.#running.values()].filter(each => each === connections).length;
    const isFull = onServer > 0 && onServer >= Math.floor(connections.max / 2);
    if (isFull || this.#running.size >= maxRunning) throw busy('Other imports are running.');
  }
}

/** Thrown to roll back the transaction of an import that changes nothing. */
class NotApplied extends Error {
  readonly report: ImportReport;

  constructor(report: ImportReport) {
    super('the import changes nothing');
    this.report = report;
  }
}

/**
 * Applies a file in one transaction. Its last statement returns the report, so that it is
 * stored with the `Idempotency-Key`.
 */
async function apply(
  context: RequestContext,
  { order, resource, idempotencyKey }: ImportRequest,
  pieces: readonly Buffer[],
): Promise<ImportReport> {
  const changesCache = resource.isCached && !order.dryRun;
  if (idempotencyKey !== undefined && !order.dryRun) {
    context.makeRepeatable(idempotencyKey, [order, digestOf(pieces)]);
  }

  const prepare = async (transaction: TenantTransaction): Promise<Statement> => {
    const [row] = await transaction.query(tryLockImports);
    if (!row?.locked) throw tenantBusy();

    const counts = noCounts();
    const requireRights = () => context.requireCaller(resource.access.write);
    const isRead = await applyFile({ transaction, order, resource, pieces, counts, requireRights });
    const isRefused = !isRead || (order.atomic && counts.refused > 0);
    if (isRefused) Object.assign(counts, { created: 0, updated: 0 });
    if (isRefused || order.dryRun) throw new NotApplied(reportOf(order, counts, false));

    return { ...selectReport, values: [JSON.stringify(reportOf(order, counts, true))] };
  };

  try {
    const [row] = await context.write(prepare, changesCache ? resource.name : undefined);
    // The report of an earlier request with the same key may be of a build without warnings.
    return { Warnings: [], ...JSON.parse(String(row?.report)) };
  } catch (error) {
    if (error instanceof NotApplied) return error.report;
    throw error;
  }
}

const selectReport = { name: 'import_report', text: 'select $1::text as report' };

function digestOf(pieces: readonly Buffer[]): string {
  const hash = createHash('sha256');
  for (const piece of pieces) hash.update(piece);
  return hash.digest('hex');
}

function tenantBusy(): Problem {
  return busy('The tenant has another import, or its database is being moved or changed.');
}

function busy(detail: string): Problem {
  return problem('unavailable', {
    detail: `${detail} Send the file again later.`,
    headers: { 'Retry-After': '5' },
  });
}
