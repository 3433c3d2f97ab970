import type { TenantRecord } from '../control/directory.ts';
import type { Representation } from '../http/representation.ts';

export interface CachedResponse {
  readonly representation: Representation;
  /** From where it was read, and a moment before that. */
  readonly source: string;
  readonly readAt: number;
  expiresAt: number;
}

/** What is kept of one resource. A change drops all of it: a read that began before finds it gone, and keeps nothing. */
export interface CachedResource<Loading> {
  readonly responses: Map<string, CachedResponse>;
  /** What is being read. */
  readonly loading: Map<string, Promise<Loading>>;
}

interface CachedTenant<Loading> {
  /** For whom the answers were read. Once the tenant's row has changed there is another record, and these count no more. */
  readonly record: TenantRecord;
  readonly resources: Map<string, CachedResource<Loading>>;
  bytes: number;
  usedAt: number;
}

interface ResponseStoreOptions {
  /** Most memory, in bytes. One tenant has at most a sixteenth of it. */
  maxBytes: number;
  now: () => number;
}

const overhead = 500; // bytes of an answer beside its own, about

/** Answers by tenant and resource, in bounded memory: what has not been used for the longest makes room. */
export class ResponseStore<Loading> {
  readonly #maxBytes: number;
  readonly #now: () => number;
  readonly #tenants = new Map<string, CachedTenant<Loading>>();
  #bytes = 0;

  constructor({ maxBytes, now }: ResponseStoreOptions) {
    this.#maxBytes = maxBytes;
    this.#now = now;
  }

  /** Memory that the answers take, in bytes. */
  get bytes(): number {
    return this.#bytes;
  }

  /** @param now when it is used, by the clock of the store */
  find(tenant: TenantRecord, resource: string, key: string, now: number): CachedResponse | undefined {
    const owner = this.#tenants.get(tenant.guid);
    if (owner?.record !== tenant) return undefined;
    const answer = owner.resources.get(resource)?.responses.get(key);
    if (answer) owner.usedAt = now;
    return answer;
  }

  /** What is kept of a resource at this moment; nothing yet, if it is asked for the first time. */
  resource(tenant: TenantRecord, name: string): CachedResource<Loading> {
    let owner = this.#tenants.get(tenant.guid);
    if (owner?.record !== tenant) {
      if (owner) this.#forget(owner);
      owner = { record: tenant, resources: new Map(), bytes: 0, usedAt: this.#now() };
      this.#tenants.set(tenant.guid, owner);
    }
    let kept = owner.resources.get(name);
    if (!kept) {
      kept = { responses: new Map(), loading: new Map() };
      owner.resources.set(name, kept);
    }
    return kept;
  }

  /** Keeps an answer with those of a resource, if `kept` is still what there is of it, and there is room. */
  keep(tenant: TenantRecord, name: string, kept: CachedResource<Loading>, key: string, answer: CachedResponse): void {
    const owner = this.#tenants.get(tenant.guid);
    if (owner?.record !== tenant || owner.resources.get(name) !== kept) return;
    const share = this.#maxBytes / 16;
    if (sizeOf(answer) > share) return;
    const replaced = kept.responses.get(key);
    const size = sizeOf(answer) - (replaced ? sizeOf(replaced) : 0);
    if (owner.bytes + size > share) {
      this.#forget(owner); // it begins anew, rather than take what is the others'
      return;
    }
    kept.responses.set(key, answer);
    owner.bytes += size;
    owner.usedAt = this.#now();
    this.#bytes += size;
    while (this.#bytes > this.#maxBytes) {
      let oldest = owner;
      for (const each of this.#tenants.values()) if (each.usedAt < oldest.usedAt) oldest = each;
      this.#forget(oldest);
    }
  }

  /** Drops what is kept of a resource (`guid/name`), of a tenant (`guid`), or of all (`*`). */
  drop(key: string): void {
    if (key === '*') {
      this.#tenants.clear();
      this.#bytes = 0;
      return;
    }
    const [guid = '', resource] = key.split('/');
    const owner = this.#tenants.get(guid);
    if (!owner) return;
    if (resource === undefined) this.#forget(owner);
    else this.#dropResource(owner, resource);
  }

  #dropResource(owner: CachedTenant<Loading>, name: string): void {
    const kept = owner.resources.get(name);
    if (!kept) return;
    owner.resources.delete(name);
    let bytes = 0;
    for (const answer of kept.responses.values()) bytes += sizeOf(answer);
    owner.bytes -= bytes;
    this.#bytes -= bytes;
  }

  #forget(owner: CachedTenant<Loading>): void {
    this.#tenants.delete(owner.record.guid);
    this.#bytes -= owner.bytes;
  }
}

function sizeOf({ representation }: CachedResponse): number {
  return representation.size + overhead;
}
