import type { Person } from './baseline.ts';
import { progress } from './bench-progress.ts';
import { eachOf } from './bench-tenants.ts';
import { call } from './call.ts';
import type { Bench } from './measure.ts';
import type { Request } from './plan.ts';
import type { Stage } from './stage.ts';
import { startServer, type Target } from './targets.ts';
import { withTargets } from './workload.ts';

interface Pair {
  readonly accessToken: string;
  readonly refreshToken: string;
  readonly at: number;
}

const renewAfterMs = 7 * 60_000; // an access token lives 15 minutes, and a measurement must not see it end
const atOnce = 4;

/** Access tokens of every tenant's administrator, and the peer's. */
export class Tokens {
  readonly #stage: Stage;
  readonly #pairs = new Map<number, Pair>();
  /** A peer forgets its key when it ends. */
  readonly #ofPeers = new WeakMap<Target, string>();

  constructor(stage: Stage) {
    this.#stage = stage;
  }

  /** @returns whether a token was replaced, so that the service has not seen it yet */
  async renew(target: Target, tenants: number[]): Promise<boolean> {
    if (target.name === 'peer') return this.#renewPeer(target);
    if (target.name !== 'service') return false;
    const now = Date.now();
    const old = this.#old(tenants);
    if (old.length > 50) progress(`${old.length} tokens`);
    await eachOf(old, atOnce, async tenant => {
      const pair = this.#pairs.get(tenant);
      const { guid, admin } = this.#tenant(tenant);
      const request = pair ? refreshRequest(guid, pair.refreshToken) : loginRequest(admin, guid);
      const { status, body } = await call(target.url, request);
      if (status !== 200) throw new Error(`${request.path} was answered ${status} ${body}`);
      this.#pairs.set(tenant, { ...JSON.parse(body), at: now });
    });
    return old.length > 0;
  }

  /** Whether one of them has no token, or one that is soon to end. */
  needed(tenants: number[]): boolean {
    return this.#old(tenants).length > 0;
  }

  /** The headers by which a target knows who calls. */
  of(target: Target, tenant: number): Record<string, string> {
    const token = target.name === 'peer' ? this.#ofPeers.get(target) : this.#pairs.get(tenant)?.accessToken;
    if (target.name !== 'peer' && target.name !== 'service') return {};
    if (token === undefined) throw new Error(`no token of tenant ${tenant} was made`);
    return { Authorization: `Bearer ${token}` };
  }

  #old(tenants: number[]): number[] {
    const now = Date.now();
    return tenants.filter(tenant => now - (this.#pairs.get(tenant)?.at ?? 0) > renewAfterMs);
  }

  async #renewPeer(target: Target): Promise<boolean> {
    if (this.#ofPeers.has(target)) return false;
    const [person] = this.#stage.people;
    if (!person) throw new Error('nobody can log in at the peer');
    const { body } = await call(target.url, loginRequest(person));
    this.#ofPeers.set(target, JSON.parse(body).accessToken);
    return true;
  }

  #tenant(index: number) {
    const tenant = this.#stage.tenants[index];
    if (!tenant) throw new Error(`there is no tenant ${index}`);
    return tenant;
  }
}

/** Renews by a process of the service that is gone when those are started that must not know the tenants. */
export async function renewTokens({ stage, tokens }: Bench, tenants: number[]): Promise<void> {
  if (!tokens.needed(tenants)) return;
  await withTargets([() => startServer(stage)], service => tokens.renew(service, tenants));
}

/** @param guid the tenant, where there is more than one */
export function loginRequest({ email, password }: Person, guid?: string): Request {
  return post('/api/v1/auth/login', { email, password }, guid);
}

function refreshRequest(guid: string, refreshToken: string): Request {
  return post('/api/v1/auth/refresh', { refreshToken }, guid);
}

function post(path: string, body: object, guid?: string): Request {
  const headers = { 'Content-Type': 'application/json', ...(guid === undefined ? {} : { 'X-Tenant': guid }) };
  return { method: 'POST', path, headers, body: JSON.stringify(body) };
}
