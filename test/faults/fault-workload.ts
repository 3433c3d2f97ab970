import { setTimeout as sleep } from 'node:timers/promises';
import { Random } from '../simulation/random.ts';
import type { FaultClients } from './fault-clients.ts';
import type { FaultInstallation, FaultTenant } from './fault-installation.ts';
import { FaultLedger } from './fault-ledger.ts';
import type { FaultService } from './fault-service.ts';

const units = '/api/v1/UnitsOfMeasure';
const activities = '/api/v1/Activity';
const maxActivities = 1_000;
const noCache = { 'Cache-Control': 'no-cache' };
/** A change shows in the other processes after this time, in ms. */
const feedMs = 1_000;
/**
 * The service measures the delay of a change at the server, a client at its own end of the
 * connection.
 */
const toleranceMs = 50;

/**
 * A record whose name counts the changes. Each change names the version that it replaces
 * (`If-Match`).
 */
export interface Counter {
  readonly path: string;
  readonly key: string;
  /** The highest acknowledged number of each process, and when it was acknowledged. */
  readonly acknowledged: { number: number; at: number; service: string }[];
  /** The writer of each acknowledged number. */
  readonly writers: Map<number, string>;
  attempted: number;
}

/** The writes of the clients of one tenant. */
export interface TenantWrites {
  readonly tenant: FaultTenant;
  readonly counters: Counter[];
  readonly appended: FaultLedger;
  readonly created: FaultLedger;
}

/**
 * The load: for each tenant, writers that change counters, append activities and create
 * records, and readers. Each checks what it reads against what was acknowledged before.
 */
export class FaultWorkload {
  readonly writes: readonly TenantWrites[];
  readonly #installation: FaultInstallation;
  readonly #clients: FaultClients;
  readonly #report: (violation: string) => void;
  readonly #random: Random;
  readonly #loops: Promise<void>[] = [];
  #isStopped = false;
  #numbers = 0;

  constructor(
    installation: FaultInstallation,
    clients: FaultClients,
    seed: number,
    report: (text: string) => void,
  ) {
    this.#installation = installation;
    this.#clients = clients;
    this.#report = report;
    this.#random = new Random(seed);
    this.writes = installation.tenants.map(tenant => ({
      tenant,
      counters: [],
      appended: new FaultLedger(),
      created: new FaultLedger(),
    }));
  }

  /** Creates the counters, and starts the clients. */
  async start(): Promise<void> {
    for (const writes of this.writes) {
      await this.#clients.login(this.#installation.services, writes.tenant);
      for (let index = 0; index < 2; index++) {
        writes.counters.push(await this.#createCounter(writes.tenant, index));
      }

      this.#loop(60, () => this.#changeCounter(writes));
      this.#loop(60, () => this.#changeCounter(writes));
      this.#loop(15, () => this.#readCounter(writes, {}));
      this.#loop(15, () => this.#readCounter(writes, {}));
      this.#loop(50, () => this.#readCounter(writes, noCache));
      this.#loop(80, () => this.append(this.#anyService(), writes).then(() => {}));
      this.#loop(80, () => this.append(this.#anyService(), writes).then(() => {}));
      this.#loop(300, () => this.#readActivities(writes));
      this.#loop(500, () => this.#create(writes));
      this.#loop(
        300_000,
        () => this.#clients.login(this.#installation.services, writes.tenant),
        300_000,
      );
    }
  }

  /** Ends the clients after their running requests. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    await Promise.all(this.#loops);
  }

  /**
   * Appends an activity.
   * @returns true when it was acknowledged
   */
  async append(service: FaultService, { tenant, appended }: TenantWrites): Promise<boolean> {
    const write = appended.begin(`${tenant.slug} ${this.#numbers++}`, service.name);
    const body = { ActivityCode: 1, Comment: write.value };
    const reply = await this.#clients.request(service, tenant, 'POST', activities, { body });
    if (!reply) return false;
    write.acknowledgedAt = performance.now();
    write.createdAt = reply.body.CreatedAt;
    return true;
  }

  /**
   * Reads a counter from the database.
   * @returns true when that succeeds
   */
  async probe(
    service: FaultService,
    { tenant, counters: [counter] }: TenantWrites,
  ): Promise<boolean> {
    return (
      (await this.#clients.request(service, tenant, 'GET', counter?.path ?? '', {
        headers: noCache,
      })) !== undefined
    );
  }

  #loop(pauseMs: number, step: () => Promise<void>, firstPauseMs = 0): void {
    const run = async (): Promise<void> => {
      await this.#pause(firstPauseMs);
      while (!this.#isStopped) {
        await step();
        await this.#pause(this.#random.between(0.5, 1.5) * pauseMs);
      }
    };
    this.#loops.push(run());
  }

  async #pause(ms: number): Promise<void> {
    const end = performance.now() + ms;
    while (!this.#isStopped && performance.now() < end) {
      await sleep(Math.min(500, Math.max(1, end - performance.now())));
    }
  }

  #anyService(): FaultService {
    return this.#random.pick(this.#installation.services) as FaultService;
  }

  async #createCounter(tenant: FaultTenant, index: number): Promise<Counter> {
    const body = { Code: `C${index}`, Name: nameOf(tenant, 0, 'start') };
    const [service] = this.#installation.services as [FaultService];
    const reply = await this.#clients.request(service, tenant, 'POST', units, { body });
    if (!reply) throw new Error('a counter could not be created');
    const key = String(reply.body.Id);
    return { path: `${units}/${key}`, key, acknowledged: [], writers: new Map(), attempted: 0 };
  }

  async #changeCounter({ tenant, counters }: TenantWrites): Promise<void> {
    const counter = this.#random.pick(counters) as Counter;
    const before = await this.#clients.request(this.#anyService(), tenant, 'GET', counter.path, {
      headers: noCache,
    });
    const tag = before?.headers.get('etag');
    if (!before || !tag) return;

    const number = this.#numberOf(tenant, before.body.Name) + 1;
    const service = this.#anyService();
    const writer = `w${this.#numbers++}`;
    counter.attempted = Math.max(counter.attempted, number);

    const reply = await this.#clients.request(service, tenant, 'PUT', counter.path, {
      body: { Code: before.body.Code, Name: nameOf(tenant, number, writer) },
      headers: { 'If-Match': tag },
      expected: [412],
    });
    if (reply?.status !== 200) return;

    const other = counter.writers.get(number);
    if (other !== undefined) {
      this.#report(
        `${tenant.slug}: ${writer} and ${other} both have changed ${counter.path} to ${number}`,
      );
    }

    counter.writers.set(number, writer);
    counter.acknowledged.push({ number, at: performance.now(), service: service.name });
  }

  async #readCounter(
    { tenant, counters }: TenantWrites,
    headers: Record<string, string>,
  ): Promise<void> {
    const counter = this.#random.pick(counters) as Counter;
    const service = this.#anyService();
    const sentAt = performance.now();
    const reply = await this.#clients.request(service, tenant, 'GET', counter.path, { headers });
    if (!reply) return;

    const number = this.#numberOf(tenant, reply.body.Name);
    const isUncached = headers === noCache;
    const minimum = counter.acknowledged.findLast(({ at, service: by }) =>
      isUncached || by === service.name ? at < sentAt : at < sentAt - feedMs - toleranceMs,
    );

    if (minimum && number < minimum.number) {
      const age = (sentAt - minimum.at).toFixed(0);
      this.#report(
        `${tenant.slug}: ${service.name} returned ${number} for ${counter.path}${isUncached ? ' uncached' : ''}, ` +
          `${age} ms after ${minimum.service} had acknowledged ${minimum.number}`,
      );
    }

    if (number > counter.attempted) {
      this.#report(`${tenant.slug}: ${counter.path} has ${number}, which nobody wrote`);
    }
  }

  async #readActivities({ tenant, appended }: TenantWrites): Promise<void> {
    const sentAt = performance.now();
    const path = `${activities}?limit=${maxActivities}`;
    const reply = await this.#clients.request(this.#anyService(), tenant, 'GET', path);
    if (!reply) return;

    const list = reply.body as { Comment: string; CreatedAt: string }[];
    const comments = list.map(({ Comment }) => Comment);
    const found = new Set(comments);
    if (found.size < comments.length) {
      this.#report(`${tenant.slug}: an activity appears twice in the list`);
    }

    for (const comment of found) {
      if (!appended.has(comment)) {
        this.#report(`${tenant.slug}: the list has an activity that nobody appended: ${comment}`);
      }
    }

    // The list has the newest activities.
    const oldest = list.length < maxActivities ? '' : (list.at(-1)?.CreatedAt ?? '');
    for (const { value, createdAt } of appended.acknowledged(sentAt)) {
      if (createdAt > oldest && !found.has(value)) {
        this.#report(`${tenant.slug}: the list lacks an acknowledged activity: ${value}`);
      }
    }
  }

  async #create({ tenant, created }: TenantWrites): Promise<void> {
    const service = this.#anyService();
    const write = created.begin(`U${this.#numbers++}`, service.name);
    const body = { Code: write.value, Name: nameOf(tenant, 0, 'created') };
    if (!(await this.#clients.request(service, tenant, 'POST', units, { body }))) return;
    write.acknowledgedAt = performance.now();
    const path = `${units}/code/${write.value}`;
    const own = await this.#clients.request(service, tenant, 'GET', path, { expected: [404, 400] });
    if (own && own.status !== 200) {
      this.#report(
        `${tenant.slug}: ${service.name} does not find ${write.value}, which it created`,
      );
    }
    await this.#pause(feedMs + toleranceMs);
    const other = await this.#clients.request(this.#anyService(), tenant, 'GET', path, {
      expected: [404, 400],
    });
    if (other && other.status !== 200) {
      this.#report(`${tenant.slug}: another process does not find ${write.value} after 1 s`);
    }
  }

  #numberOf(tenant: FaultTenant, name: string): number {
    const [slug, number] = name.split(' ');
    if (slug !== tenant.slug) this.#report(`${tenant.slug}: a response has data of ${slug}`);
    return Number(number);
  }
}

function nameOf({ slug }: FaultTenant, number: number, writer: string): string {
  return `${slug} ${number} ${writer}`;
}
