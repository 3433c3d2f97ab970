import { setTimeout as delay } from 'node:timers/promises';
import { expect } from 'chai';
import pg from 'pg';
import { Client } from './client.ts';
import type { ServiceProcess, ServiceProcesses } from './service-processes.ts';
import type { TestTenant } from './world.ts';

const path = '/api/v1/EntityStatus';
const uncached = { 'Cache-Control': 'no-cache' };
const sampleMs = 50;
/** Clients of each process, which send without a pause. */
const clientsPerProcess = 8;

/** A process of the service under load. */
export interface LoadedService extends ServiceProcess {
  /** The time at which the service listened, by `performance.now()`. */
  readonly listeningAt: number;
  /** The time of the first request that succeeded; undefined until then. */
  servedAt: number | undefined;
  /**
   * True from the end of the service on: it gets no further requests, as from a balancer, and
   * its running ones must succeed.
   */
  isEnding: boolean;
}

/** The connections that were seen on a server since the last reset. */
interface Seen {
  /** The connections at the last look. */
  now: number;
  /** The most connections of the processes of the service at a moment. */
  peak: number;
  /** For how long there were more than the budget, in ms. */
  aboveMs: number;
  seenAt: number;
}

/**
 * Processes of the service under load, whose connections to each server are counted every 50
 * ms. Close it before the servers.
 */
export class LoadedServices {
  /** Responses by their status; `cut` are those without one. */
  readonly counts = new Map<string, number>();
  /**
   * Failures that no client could handle: other than 503 with the advice to repeat the request.
   */
  readonly wrong: string[] = [];
  /** The services that run and serve. */
  services: LoadedService[] = [];
  readonly #budget: number;
  readonly #processes: ServiceProcesses;
  readonly #tenants: readonly TestTenant[];
  /** The administrators of the tenants, as they were logged in last. */
  readonly #clients = new Map<TestTenant, Client>();
  readonly #logins = new Map<TestTenant, Promise<void>>();
  readonly #sessions: pg.Client[] = [];
  readonly #seen: Seen[] = [];
  readonly #background: Promise<void>[] = [];
  #isRunning = true;
  #written = 0;

  /** @param tenants each request is of one of them, at random */
  constructor(budget: number, processes: ServiceProcesses, tenants: readonly TestTenant[]) {
    this.#budget = budget;
    this.#processes = processes;
    this.#tenants = tenants;
  }

  /** The connections to each server now. */
  get connections(): number[] {
    return this.#seen.map(({ now }) => now);
  }

  /** The most connections to each server at a moment. */
  get peaks(): number[] {
    return this.#seen.map(({ peak }) => peak);
  }

  /** For how long there were more connections to each server than the budget, in ms. */
  get aboveMs(): number[] {
    return this.#seen.map(({ aboveMs }) => Math.round(aboveMs));
  }

  /**
   * Counts the connections to a server from now on.
   * @param url superuser's
   * @returns the session that counts them
   */
  async watch(url: string): Promise<pg.Client> {
    const session = new pg.Client({ connectionString: url, application_name: 'sampler' });
    await session.connect();
    const seen = newSeen();
    this.#sessions.push(session);
    this.#seen.push(seen);
    this.#background.push(this.#sample(session, seen));

    return session;
  }

  /** Starts a process, with load once it listens. */
  async start(
    environment: Readonly<Record<string, string>>,
    clients = clientsPerProcess,
  ): Promise<LoadedService> {
    const service = this.load(await this.#processes.start(environment), clients);
    this.services.push(service);

    return service;
  }

  /** Puts load on a process until it ends. */
  load(process: ServiceProcess, clients = clientsPerProcess): LoadedService {
    const service = {
      ...process,
      listeningAt: performance.now(),
      servedAt: undefined,
      isEnding: false,
    };
    for (let n = 0; n < clients; n++) this.#background.push(this.#request(service));

    return service;
  }

  /** Stops a service, and waits until it has ended. */
  async end(service: LoadedService): Promise<void> {
    service.isEnding = true;
    this.services = this.services.filter(each => each !== service);
    service.process.kill('SIGTERM');
    await service.ended;
  }

  /** Stops all services, and waits until they have ended. */
  async endAll(): Promise<void> {
    await Promise.all(this.services.map(service => this.end(service)));
  }

  /** Forgets what was seen. */
  reset(): void {
    for (const seen of this.#seen) Object.assign(seen, { ...newSeen(), now: seen.now });
    this.counts.clear();
  }

  /** @param above connections above the budget that the handbook names for this case */
  expectWithinBudget(above = 0): void {
    expect(Math.max(...this.peaks), 'peak').to.be.at.most(this.#budget + above);
    expect(this.wrong.slice(0, 3), 'wrong responses').to.deep.equal([]);
  }

  async close(): Promise<void> {
    this.#isRunning = false;
    await this.#processes.killAll();
    await Promise.all(this.#background);
    for (const session of this.#sessions) await session.end();
  }

  /** Counts the connections of processes of the service, whose names have an id. */
  async #sample(session: pg.Client, seen: Seen): Promise<void> {
    while (this.#isRunning) {
      const { rowCount } = await session.query(
        `select from pg_stat_activity
          where backend_type = 'client backend' and application_name ~ '^backoffice-[a-z-]+ [0-9a-f-]{36}$'`,
      );
      const seenAt = performance.now();
      seen.now = rowCount ?? 0;
      seen.peak = Math.max(seen.peak, seen.now);
      if (seen.now > this.#budget) seen.aboveMs += seenAt - seen.seenAt;
      seen.seenAt = seenAt;
      await delay(sampleMs);
    }
  }

  /** Sends one request after the other: a tenth are changes, and no list comes from memory. */
  async #request(service: LoadedService): Promise<void> {
    const { process: child } = service;
    const isServing = (): boolean =>
      !service.isEnding && child.exitCode === null && child.signalCode === null;
    while (this.#isRunning && isServing()) {
      const tenant = this.#tenants[Math.floor(Math.random() * this.#tenants.length)] as TestTenant;
      const administrator = this.#clients.get(tenant);
      if (!administrator) {
        await this.#logIn(tenant, service.url);
        continue;
      }

      const client = administrator.at(service.url);
      const isWrite = Math.random() < 0.1;
      const sent = isWrite
        ? client.post(path, { Title: `title ${this.#written++}` })
        : client.get(path, uncached);
      const response = await sent.catch(() => undefined);
      if (response?.body?.code === 'token_expired') {
        if (this.#clients.get(tenant) === administrator) this.#clients.delete(tenant);
        continue;
      }

      const key = String(response?.status ?? 'cut');
      this.counts.set(key, (this.counts.get(key) ?? 0) + 1);

      if (!response) {
        await delay(100);
      } else if (response.status < 300) {
        service.servedAt ??= performance.now();
      } else {
        const text = JSON.stringify(response.body);
        const isAdvised = response.headers.has('retry-after') || text.includes('may have been');
        if (response.status !== 503 || !isAdvised) this.wrong.push(`${response.status} ${text}`);
        await delay(20);
      }
    }
  }

  /**
   * Logs in an administrator, once for all who wait for that: an access token is valid for 15
   * minutes.
   */
  async #logIn(tenant: TestTenant, url: string): Promise<void> {
    const logIn = async (): Promise<void> => {
      const login = new Client(url).post('/api/v1/auth/login', tenant.admin, {
        'X-Tenant': tenant.guid,
      });
      const response = await login.catch(() => undefined);
      if (response?.status === 200) this.#clients.set(tenant, new Client(url, response.body));
      else await delay(100);
    };
    const running = this.#logins.get(tenant) ?? logIn().finally(() => this.#logins.delete(tenant));
    this.#logins.set(tenant, running);

    await running;
  }
}

function newSeen(): Seen {
  return { now: 0, peak: 0, aboveMs: 0, seenAt: performance.now() };
}
