import { LRUCache } from 'lru-cache';
import type { TenantRecord } from '../../control/records.ts';
import type { Representation } from '../../lib/http/response/representation.ts';

export interface CachedResponse {
  readonly representation: Representation;
  /** Memory of the bodies that `representation` has made since it was stored, in bytes. */
  codedBytes: number;
  /** The cache does not serve the response after this moment, in ms by its clock. */
  readonly expiresAt: number;
}

/**
 * The cached responses of one resource. A change drops the whole object: a read that began
 * before the change then holds an object that is no longer in the store, and stores nothing.
 */
export interface CachedResource<Loading> {
  readonly responses: Map<string, CachedResponse>;
  /** The reads that are under way. */
  readonly loading: Map<string, Promise<Loading>>;
}

/**
 * Immutable, because `LRUCache` takes the size of an entry when the entry is set: a change of
 * size sets a new one.
 */
interface CachedTenant<Loading> {
  /**
   * The record that the responses were read for. They are not valid for a later record of the
   * same tenant.
   */
  readonly record: TenantRecord;
  readonly resources: Map<string, CachedResource<Loading>>;
  readonly bytes: number;
}

/** Estimated memory of a tenant or of a response beside its body, in bytes. */
const overhead = 500;
/** One tenant takes at most this share of the memory. */
const tenantShare = 1 / 16;

/**
 * Responses by tenant and resource, in bounded memory. Evicts the least recently used tenant,
 * in O(1).
 */
export class ResponseStore<Loading> {
  readonly #tenants: LRUCache<string, CachedTenant<Loading>>;
  readonly #maxTenantBytes: number;

  /**
   * @param maxBytes limit for all tenants together; one tenant takes at most a sixteenth of it
   */
  constructor(maxBytes: number) {
    this.#tenants = new LRUCache({ maxSize: maxBytes, sizeCalculation: tenant => tenant.bytes });
    this.#maxTenantBytes = maxBytes * tenantShare;
  }

  /** Memory of all cached responses, in bytes. */
  get bytes(): number {
    return this.#tenants.calculatedSize;
  }

  find(tenant: TenantRecord, resource: string, key: string): CachedResponse | undefined {
    return this.#find(tenant)?.resources.get(resource)?.responses.get(key);
  }

  /** Returns the cached responses of a resource; an empty object on the first call. */
  resource(tenant: TenantRecord, name: string): CachedResource<Loading> {
    let owner = this.#find(tenant);
    if (!owner) {
      owner = { record: tenant, resources: new Map(), bytes: overhead };
      this.#tenants.set(tenant.guid, owner);
    }
    let resource = owner.resources.get(name);
    if (!resource) {
      resource = { responses: new Map(), loading: new Map() };
      owner.resources.set(name, resource);
    }
    return resource;
  }

  /**
   * Stores a response, if `resource` is still the object that `resource()` returns and the
   * response fits the tenant's share. A tenant whose responses together exceed its share loses
   * all of them, so that it evicts no other tenant's.
   * @returns whether the response is stored now
   */
  set(
    tenant: TenantRecord,
    name: string,
    resource: CachedResource<Loading>,
    key: string,
    response: CachedResponse,
  ): boolean {
    const owner = this.#find(tenant);
    if (owner?.resources.get(name) !== resource) return false;
    if (overhead + sizeOf(response) > this.#maxTenantBytes) return false;
    const replaced = resource.responses.get(key);
    const bytes = owner.bytes + sizeOf(response) - (replaced ? sizeOf(replaced) : 0);
    resource.responses.set(key, response);
    return this.#keepWithinShare(tenant.guid, { ...owner, bytes });
  }

  /** Counts memory that a stored response takes beyond what `set` counted. */
  grow(
    tenant: TenantRecord,
    name: string,
    key: string,
    response: CachedResponse,
    bytes: number,
  ): void {
    const owner = this.#find(tenant);
    if (owner?.resources.get(name)?.responses.get(key) !== response) return;
    response.codedBytes += bytes;
    this.#keepWithinShare(tenant.guid, { ...owner, bytes: owner.bytes + bytes });
  }

  /**
   * Drops the cached responses of a resource (`guid/name`), of a tenant (`guid`), or of all
   * tenants (`*`).
   */
  remove(key: string): void {
    if (key === '*') {
      this.#tenants.clear();
      return;
    }
    const [guid = '', name] = key.split('/');
    if (name === undefined) this.#tenants.delete(guid);
    else this.#removeResource(guid, name);
  }

  #keepWithinShare(guid: string, owner: CachedTenant<Loading>): boolean {
    const fits = owner.bytes <= this.#maxTenantBytes;
    if (fits) this.#tenants.set(guid, owner);
    else this.#tenants.delete(guid);
    return fits;
  }

  /** Returns the entry of exactly this record, and marks it as used. */
  #find(tenant: TenantRecord): CachedTenant<Loading> | undefined {
    const owner = this.#tenants.get(tenant.guid);
    return owner?.record === tenant ? owner : undefined;
  }

  #removeResource(guid: string, name: string): void {
    const owner = this.#tenants.peek(guid);
    const resource = owner?.resources.get(name);
    if (!owner || !resource) return;
    owner.resources.delete(name);
    if (owner.resources.size === 0) {
      this.#tenants.delete(guid);
      return;
    }
    let { bytes } = owner;
    for (const response of resource.responses.values()) bytes -= sizeOf(response);
    this.#tenants.set(guid, { ...owner, bytes });
  }
}

function sizeOf({ representation, codedBytes }: CachedResponse): number {
  return representation.size + codedBytes + overhead;
}
