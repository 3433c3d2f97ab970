import type { ServerResponse } from 'node:http';
import type { EntityManager } from '@mikro-orm/postgresql';
import type { Directory, UserCounts } from '../control/directory.ts';
import type { TenantRecord } from '../control/records.ts';
import { invalidToken } from '../lib/http/request/bearer-token.ts';
import type { Representation } from '../lib/http/response/representation.ts';
import { sqlState } from '../lib/postgres/database-error.ts';
import type { RowValues, Statement } from '../lib/postgres/statement.ts';
import { isOutcomeUnknown, problem } from '../lib/problems.ts';
import {
  answerMs,
  type Deadline,
  requestDeadlineMs,
  withDeadline,
} from '../lib/runtime/deadline.ts';
import { type Caller, type CallerLookups, findCallerLoss, isCallerCurrent } from './caller.ts';
import type { TenantDatabases } from './connections/tenant-databases.ts';
import type { Prepare, TenantDriver } from './connections/tenant-driver.ts';
import { RepeatableChange } from './repeatable-change.ts';
import { type ResponseCache, represent } from './response-cache/response-cache.ts';

/** The origin of a request, for logs, and its demand on cached responses. */
export interface Origin {
  readonly traceId: string;
  readonly ipAddress: string;
  /** The header of the program that sent the request; '' without one. */
  readonly userAgent: string;
  /** True when the request refuses a cached response (`Cache-Control: no-cache`). */
  readonly bypassCache: boolean;
  /** The origin of the page that sent it, as a browser says; undefined without one. */
  readonly webOrigin: string | undefined;
}

/** The services that a request's context uses. */
export interface ContextServices {
  databases: TenantDatabases;
  responseCache: ResponseCache;
  directory: CallerLookups & Pick<Directory, 'countUsers'>;
  /** `now` is Unix time in seconds. */
  tokens: { readonly now: () => number };
}

/**
 * The time for which a response that has begun goes on after its token has expired, in seconds:
 * a file that has almost arrived is not cut off, and a client that reads slowly does not
 * receive for days the changes of others.
 */
const maxOverrunSeconds = 15 * 60;

const maxAttempts = 3;
const retryable = new Set(['40001', '40P01']); // serialization_failure, deadlock_detected

/**
 * The context of one request: its caller, and its tenant's database, which is opened on first
 * use.
 */
export class RequestContext {
  readonly tenant: TenantRecord;
  readonly origin: Origin;
  /** The moment from which on the request fails with `unavailable`. */
  deadline: Deadline;
  /** The change that repeated requests make once; undefined for a request without a key. */
  repeatable: RepeatableChange | undefined;
  readonly #services: ContextServices;
  readonly #response: ServerResponse;
  #caller: Caller | undefined;
  #database: TenantDriver | undefined;
  #em: EntityManager | undefined;

  constructor(
    services: ContextServices,
    tenant: TenantRecord,
    origin: Origin,
    response: ServerResponse,
    deadline: Deadline,
  ) {
    this.#services = services;
    this.#response = response;
    this.deadline = deadline;
    this.tenant = tenant;
    this.origin = origin;
  }

  /** @throws when the request has a caller already: a caller never changes */
  setCaller(caller: Caller): void {
    if (this.#caller) throw new Error('the request has a caller already');
    this.#caller = caller;
  }

  /**
   * The caller.
   * @throws when the request has none, as on an anonymous route
   */
  get caller(): Caller {
    if (!this.#caller) throw new Error('an anonymous request has no caller');
    return this.#caller;
  }

  /**
   * The caller; undefined when the request has none, which routes with `access: 'optional'`
   * allow.
   */
  get optionalCaller(): Caller | undefined {
    return this.#caller;
  }

  /**
   * Returns a signal that is aborted when the client closes its connection before the response
   * is complete.
   */
  clientLeft(): AbortSignal {
    const left = new AbortController();
    if (this.#response.destroyed) left.abort();
    else this.#response.once('close', () => left.abort());
    return left.signal;
  }

  /** The request's own entity manager, which the driver of the tenant's database makes. */
  get em(): EntityManager {
    this.#em ??= this.#open().entityManager();
    return this.#em;
  }

  /**
   * Lets `write` make its change once for all requests of the caller with this key.
   * @param request what must be equal when the key is used again
   */
  makeRepeatable(key: string, request: unknown): void {
    this.repeatable = new RepeatableChange(key, this.caller.userId, request);
  }

  /** Returns the rows of a reading statement. */
  read<Row extends object = RowValues>(select: Statement<Row>): Promise<Row[]> {
    return this.#open().reads.read(select, this.deadline);
  }

  /**
   * Returns the rows of a statement that may read many records; undefined when it has run for
   * `ms`.
   */
  readWithin<Row extends object = RowValues>(
    select: Statement<Row>,
    ms: number,
  ): Promise<Row[] | undefined> {
    return this.#open().reads.readWithin(select, ms, this.deadline);
  }

  /**
   * Returns a response that is the same for every caller with the permission: from the response
   * cache while it is known to be current, else made from the rows of `select`.
   * @param key identifies the response within the resource
   * @param toBody returns a value, or a list as `Representation.ofList` does; may throw the
   *   problem that the rows lead to, such as `not_found`
   */
  async cached<Row extends object = RowValues>(
    resource: string,
    key: string,
    select: () => Statement<Row>,
    toBody: (rows: Row[]) => unknown,
  ): Promise<Representation> {
    const { responseCache } = this.#services;
    if (this.origin.bypassCache) return represent(await this.read(select()), toBody);

    const cached = responseCache.find(this.tenant, resource, key);
    if (cached) return cached;

    const database = this.#open();
    return responseCache.load(
      this.tenant,
      resource,
      key,
      (deadline = this.deadline) => {
        deadline.trace ??= this.deadline.trace; // of the request that begins the shared read
        return database.reads.readCacheable(select(), deadline);
      },
      toBody,
    );
  }

  /**
   * Makes one change in a transaction. The transaction carries the caller, so that its audit
   * entry names them. Retries after a deadlock or a serialization failure.
   * @param change the statement that makes the change, or a function that makes the checks that
   *   must come first, and returns the statement
   * @param resource the resource whose cached responses the change invalidates
   * @param isRepeatable false for a change that is made again when the request is repeated with
   *   its key
   * @returns the rows of the statement
   */
  async write<Row extends RowValues = RowValues>(
    change: Statement<Row> | Prepare<Row>,
    resource?: string,
    isRepeatable = true,
  ): Promise<Row[]> {
    const database = this.#open();
    const { responseCache } = this.#services;
    const once = isRepeatable ? this.repeatable : undefined;
    const prepare: Prepare<Row> = typeof change === 'function' ? change : async () => change;
    const made: Statement | Prepare = once
      ? transaction => once.prepare(transaction, prepare)
      : change;

    const make = async (beforeCommit: () => void): Promise<RowValues[]> => {
      const { actor, deadline } = this;
      const rows = await database.change({ actor, change: made, beforeCommit, deadline });
      deadline.extend(answerMs);
      return rows;
    };

    for (let attempt = 1; ; attempt++) {
      try {
        const rows = await responseCache.changing(this.tenant, resource, make);
        return (once ? once.rows : rows) as Row[];
      } catch (error) {
        if (once && isOutcomeUnknown(error)) throw problem('unavailable', { cause: error });
        if (attempt === maxAttempts || !retryable.has(sqlState(error) ?? '')) throw error;
      }
    }
  }

  /**
   * Makes a part of a response whose first part has been sent, within a deadline of its own.
   * @throws {Problem} `forbidden` when the caller could not make the request any more, or the
   *   token has expired for longer than 15 minutes
   */
  continue<T>(makePart: () => Promise<T>): Promise<T> {
    return withDeadline(requestDeadlineMs, async deadline => {
      deadline.trace = this.deadline.trace;
      this.deadline = deadline;
      const { directory, tokens } = this.#services;
      const { endsAt = Number.POSITIVE_INFINITY } = this.caller;
      const isOverrun = tokens.now() > endsAt + maxOverrunSeconds;
      if (isOverrun || !(await isCallerCurrent(this.caller, this.tenant.guid, directory))) {
        throw problem('forbidden');
      }
      return makePart();
    });
  }

  /**
   * Checks during a long change that its request may go on, and that the caller could make it
   * now.
   * @throws {Problem} `tenant_inactive`; `invalid_token` (401) when the login has ended or the
   *   user is disabled; `forbidden` (403) when the user lacks the permission, or has another
   *   scope
   * @throws {DeadlineError}
   */
  async requireCaller(permission: string): Promise<void> {
    this.deadline.throwIfPassed();
    const loss = await findCallerLoss(
      this.caller,
      [permission],
      this.tenant.guid,
      this.#services.directory,
    );
    if (loss === 'tenant') throw problem('tenant_inactive');
    if (loss === 'login') throw invalidToken('session');
    if (loss === 'rights') throw problem('forbidden');
  }

  /** Counts the users of a business entity; they are stored in the control database. */
  countUsers(entityId: number): Promise<UserCounts> {
    return this.#services.directory.countUsers(this.tenant.id, entityId);
  }

  /**
   * The author of the changes of the request, as JSON for the audit log: the setting
   * `app.actor` of a transaction.
   */
  get actor(): string {
    return JSON.stringify({
      userId: this.#caller?.userId,
      userGuid: this.#caller?.userGuid,
      ipAddress: this.origin.ipAddress,
      traceId: this.origin.traceId,
    });
  }

  #open(): TenantDriver {
    this.#database ??= this.#services.databases.open(this.tenant);
    return this.#database;
  }
}
