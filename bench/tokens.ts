import pLimit from 'p-limit';
import { accessTokenLifetimeSeconds } from '../src/control/token-lifetime.ts';
import type { Credentials } from './baseline.ts';
import { progress } from './bench-progress.ts';
import { prepare } from './call.ts';
import type { Request } from './plan.ts';
import { startServer, type Target, withTargets } from './targets.ts';
import type { Testbed } from './testbed.ts';

interface Pair {
  readonly accessToken: string;
  readonly refreshToken: string;
  readonly at: number;
}

// half the lifetime: no token may expire during a measurement
const renewAfterMs = accessTokenLifetimeSeconds * 500;
const concurrency = 4;

/** Access tokens of every tenant's administrator, and of a user of the Fastify reference. */
export class Tokens {
  readonly #testbed: Testbed;
  readonly #pairs = new Map<number, Pair>();
  /** The tokens of each process of the Fastify reference, which generates a key of its own. */
  readonly #fastifyTokens = new WeakMap<Target, string>();

  constructor(testbed: Testbed) {
    this.#testbed = testbed;
  }

  /**
   * Renews tokens that expire soon.
   * @returns whether one was replaced, which the service has then not verified yet
   */
  async renew(target: Target, tenants: number[]): Promise<boolean> {
    if (target.name === 'fastify') return this.#renewFastify(target);
    if (target.name !== 'service') return false;
    const now = Date.now();
    const expiring = this.#expiring(tenants);
    if (expiring.length > 50) progress(`renewing ${expiring.length} tokens`);
    await pLimit(concurrency).map(expiring, async tenant => {
      const pair = this.#pairs.get(tenant);
      const { guid, admin } = this.#tenant(tenant);
      const request = pair ? refreshRequest(guid, pair.refreshToken) : loginRequest(admin, guid);
      const { status, body } = await prepare(target.url, request);
      if (status !== 200) throw new Error(`${request.path} returned ${status} ${body}`);
      this.#pairs.set(tenant, { ...JSON.parse(body), at: now });
    });
    return expiring.length > 0;
  }

  /**
   * Renews tokens in a process of the service that ends before the measured one starts, which
   * must not know the tenants.
   */
  async renewAhead(tenants: number[]): Promise<void> {
    if (this.#expiring(tenants).length === 0) return;
    await withTargets([() => startServer(this.#testbed)], service => this.renew(service, tenants));
  }

  /** Returns the headers that authenticate a request. */
  headersFor(target: Target, tenant: number): Record<string, string> {
    const token =
      target.name === 'fastify'
        ? this.#fastifyTokens.get(target)
        : this.#pairs.get(tenant)?.accessToken;
    if (target.name !== 'fastify' && target.name !== 'service') return {};
    if (token === undefined) throw new Error(`tenant ${tenant} has no token`);
    return { Authorization: `Bearer ${token}` };
  }

  /** Returns the tenants that have no token, or one that expires soon. */
  #expiring(tenants: number[]): number[] {
    const now = Date.now();
    return tenants.filter(tenant => now - (this.#pairs.get(tenant)?.at ?? 0) > renewAfterMs);
  }

  async #renewFastify(target: Target): Promise<boolean> {
    if (this.#fastifyTokens.has(target)) return false;
    const [user] = this.#testbed.users;
    if (!user) throw new Error('the Fastify reference has no user');
    const { body } = await prepare(target.url, loginRequest(user));
    this.#fastifyTokens.set(target, JSON.parse(body).accessToken);
    return true;
  }

  #tenant(index: number) {
    const tenant = this.#testbed.tenants[index];
    if (!tenant) throw new Error(`tenant ${index} does not exist`);
    return tenant;
  }
}

/** @param guid guid of the tenant; only the service has several */
export function loginRequest({ email, password }: Credentials, guid?: string): Request {
  return post('/api/v1/auth/login', { email, password }, guid);
}

function refreshRequest(guid: string, refreshToken: string): Request {
  return post('/api/v1/auth/refresh', { refreshToken }, guid);
}

function post(path: string, body: object, guid?: string): Request {
  const headers = {
    'Content-Type': 'application/json',
    ...(guid === undefined ? {} : { 'X-Tenant': guid }),
  };
  return { method: 'POST', path, headers, body: JSON.stringify(body) };
}
