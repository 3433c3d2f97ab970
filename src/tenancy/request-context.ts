import type { EntityManager } from '@mikro-orm/postgresql';
import type { Context } from 'koa';
import type { TenantDatabases } from '../connections/tenant-databases.ts';
import type { TenantDriver } from '../connections/tenant-driver.ts';
import type { TenantTransaction } from '../connections/tenant-transaction.ts';
import type { Directory } from '../control/directory.ts';
import type { TenantRecord } from '../control/records.ts';
import type { Scope } from '../control/user-entities.ts';
import { Representation } from '../http/representation.ts';
import { sqlState } from '../postgres/database-error.ts';
import type { RowValues, Statement } from '../postgres/table-statements.ts';
import type { ResponseCache } from '../response-cache/response-cache.ts';

/** Who is calling, as proved by the access token and the control database. */
export interface Caller {
  readonly sessionId: string;
  /** `jti` of the access token. */
  readonly tokenId: string;
  readonly userId: number;
  readonly userGuid: string;
  readonly firstName: string;
  readonly lastName: string;
  readonly role: string;
  readonly entityId: number | null;
  readonly entityType: 'supplier' | 'customer' | null;
  readonly scope: Scope;
  readonly permissions: ReadonlySet<string>;
}

/** Where a request comes from, for the audit log, and how it wants to be answered. */
export interface Origin {
  readonly traceId: string;
  readonly ipAddress: string;
  /** Whether what is kept in memory is not good enough (`Cache-Control: no-cache`). */
  readonly bypassCache: boolean;
}

export interface ContextServices {
  databases: TenantDatabases;
  responseCache: ResponseCache;
  directory: Pick<Directory, 'countUsers'>;
}

const maxAttempts = 3;
const retryable = new Set(['40001', '40P01']); // serialization_failure, deadlock_detected

/**
 * Gives a request its context. From here on the request reaches the database of this tenant, and no other: its entity
 * manager is forked on that database.
 */
export function bindTenant(ctx: Context, tenant: TenantRecord, services: ContextServices): void {
  const readThrough = /\bno-cache\b/i.test(ctx.req.headers['cache-control'] ?? '');
  const { traceId, ipAddress } = ctx.state;
  ctx.state.tenant = tenant;
  ctx.state.context = new RequestContext(services, tenant, { traceId, ipAddress, bypassCache: readThrough });
}

/** Records the caller that was authenticated for a request. */
export function bindCaller(ctx: Context, caller: Caller): void {
  ctx.state.caller = caller;
  (ctx.state.context as RequestContext).setCaller(caller);
}

/** What a handler works with: the caller, and the tenant's database, which is opened on first use. */
export class RequestContext {
  readonly tenant: TenantRecord;
  readonly origin: Origin;
  readonly #services: ContextServices;
  #caller: Caller | undefined;
  #database: TenantDriver | undefined;
  #em: EntityManager | undefined;

  constructor(services: ContextServices, tenant: TenantRecord, origin: Origin) {
    this.#services = services;
    this.tenant = tenant;
    this.origin = origin;
  }

  /** @throws when the request has a caller already: nobody becomes somebody else */
  setCaller(caller: Caller): void {
    if (this.#caller) throw new Error('the request has a caller already');
    this.#caller = caller;
  }

  /** @throws on an anonymous route, which has no caller */
  get caller(): Caller {
    if (!this.#caller) throw new Error('an anonymous request has no caller');
    return this.#caller;
  }

  /** Undefined when nobody is logged in, where that is allowed. */
  get optionalCaller(): Caller | undefined {
    return this.#caller;
  }

  /** This request's own entity manager, forked on the tenant's database. */
  get em(): EntityManager {
    this.#em ??= this.#open().entityManager();
    return this.#em;
  }

  /** For reading records as they are answered. */
  read(select: Statement): Promise<RowValues[]> {
    return this.#open().read(select);
  }

  /**
   * An answer that is the same for everybody who may ask for it: from memory while it is known to be current, else from
   * the rows of `select`.
   * @param key names the answer among those of the resource
   */
  async cached(
    resource: string,
    key: string,
    select: () => Statement,
    toAnswer: (rows: RowValues[]) => unknown,
  ): Promise<Representation> {
    const { responseCache: answers } = this.#services;
    if (this.origin.bypassCache) return new Representation(toAnswer(await this.read(select())));
    const kept = answers.find(this.tenant, resource, key);
    if (kept) return kept;
    const database = this.#open();
    return answers.load(this.tenant, resource, key, () => database.readCacheable(select(), resource), toAnswer);
  }

  /**
   * For changing: makes the change that `prepare` tells of in a transaction that carries the caller, so that the audit
   * entry written with it names them. Done again after a deadlock.
   * @param resource whose kept answers the change makes old
   * @returns the rows that the statement returns
   */
  async write(
    prepare: (transaction: TenantTransaction) => Promise<Statement>,
    resource?: string,
  ): Promise<RowValues[]> {
    const database = this.#open();
    const announce = async (): Promise<void> => {
      if (resource !== undefined) await this.#services.responseCache.invalidate(this.tenant, resource);
    };
    for (let attempt = 1; ; attempt++) {
      try {
        return await database.change({ actor: this.#actor(), resource, prepare, announce });
      } catch (error) {
        if (attempt === maxAttempts || !retryable.has(sqlState(error) ?? '')) throw error;
      }
    }
  }

  /** Whether users, who live in the control database, belong to a business entity. */
  async hasUsers(entityId: number): Promise<boolean> {
    return (await this.#services.directory.countUsers(this.tenant.id, entityId)) > 0;
  }

  #open(): TenantDriver {
    this.#database ??= this.#services.databases.open(this.tenant);
    return this.#database;
  }

  #actor(): string {
    return JSON.stringify({
      userId: this.#caller?.userId,
      userGuid: this.#caller?.userGuid,
      ipAddress: this.origin.ipAddress,
      traceId: this.origin.traceId,
    });
  }
}
