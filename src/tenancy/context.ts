import type { EntityManager } from '@mikro-orm/postgresql';
import type { Directory, TenantRecord } from '../control/directory.ts';
import type { Scope } from '../control/entities.ts';
import { sqlState } from '../database-error.ts';
import type { Lease, TenantDatabases } from './tenant-databases.ts';

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

/** Where a request comes from, for the audit log. */
export interface Origin {
  readonly traceId: string;
  readonly ipAddress: string;
}

interface ContextParts {
  databases: TenantDatabases;
  directory: Pick<Directory, 'countUsers'>;
}

const maxAttempts = 3;
const retryable = new Set(['40001', '40P01']); // serialization_failure, deadlock_detected

/**
 * What a handler works with: who calls, and the tenant's database, leased on first use and given back when the request
 * ends.
 */
export class RequestContext {
  readonly tenant: TenantRecord;
  readonly origin: Origin;
  readonly #caller: Caller | undefined;
  readonly #databases: TenantDatabases;
  readonly #directory: Pick<Directory, 'countUsers'>;
  #lease: Promise<Lease> | undefined;
  #em: EntityManager | undefined;

  constructor({ databases, directory }: ContextParts, tenant: TenantRecord, origin: Origin, caller?: Caller) {
    this.#databases = databases;
    this.#directory = directory;
    this.tenant = tenant;
    this.origin = origin;
    this.#caller = caller;
  }

  /** @throws on an anonymous route, which has no caller */
  get caller(): Caller {
    if (!this.#caller) throw new Error('an anonymous request has no caller');
    return this.#caller;
  }

  /** Undefined when nobody is logged in, where that is allowed. */
  get possibleCaller(): Caller | undefined {
    return this.#caller;
  }

  /** For reading: this request's entity manager. */
  async em(): Promise<EntityManager> {
    const lease = await this.#leased();
    this.#em ??= lease.entityManager();
    return this.#em;
  }

  /**
   * For changing: runs `change` in a transaction that carries the caller, so that the audit entries written with it
   * name them. Use only the entity manager handed in. Run again, on a fresh one, after a deadlock.
   */
  async write<T>(change: (em: EntityManager) => Promise<T>): Promise<T> {
    const lease = await this.#leased();
    for (let attempt = 1; ; attempt++) {
      try {
        return await lease.entityManager().transactional(async em => {
          await em.execute(`select set_config('app.actor', ?, true)`, [this.#actor()]);
          return change(em);
        });
      } catch (error) {
        if (attempt === maxAttempts || !retryable.has(sqlState(error) ?? '')) throw error;
      }
    }
  }

  /** Whether users, who live in the control database, belong to a business entity. */
  async hasUsers(entityId: number): Promise<boolean> {
    return (await this.#directory.countUsers(this.tenant.id, entityId)) > 0;
  }

  /** Gives the database back. Called once, when the request has ended. */
  release(): void {
    this.#lease?.then(
      lease => lease.release(),
      () => {},
    );
  }

  #leased(): Promise<Lease> {
    this.#lease ??= this.#databases.acquire(this.tenant);
    return this.#lease;
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
