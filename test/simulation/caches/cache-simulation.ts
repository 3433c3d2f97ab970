import { changeTopics } from '../../../src/control/change-topics.ts';
import { Random } from '../random.ts';
import type { SimulationOptions } from '../simulation-options.ts';
import { CacheFaults } from './cache-faults.ts';
import { CacheWorld } from './cache-world.ts';
import { CachedService } from './cached-service.ts';
import { InstallationModel, type ModelTenant, type ModelUser, resources } from './installation-model.ts';
import { checkRefusal, checkReply } from './promises.ts';

/** What a simulation is about: responses and the changes of their rows, or tokens and the changes of their holders. */
export type CacheSubject = 'responses' | 'sessions';

const maxServices = 4;
/** After the last fault, all services are as before after this time, in ms. */
const recoveryMs = 10_000;
/** A response has expired after this time, unless the write monitor has revalidated it. */
const expiredMs = 65_000;
/** After this time, the statistics have all changes, and a poll of the write monitor has read them. */
const statisticsMs = 60_000;

/**
 * Simulates processes whose response caches and token caches are the production code, with faults first and without
 * them at the end. The same seed gives the same run.
 * @throws {Violation} when a promise of the documentation is broken
 */
export async function simulateCaches(subject: CacheSubject, { seed, trace }: SimulationOptions): Promise<void> {
  const simulation = new CacheSimulation(subject, new CacheWorld(new Random(seed), trace));
  const { stackTraceLimit } = Error;
  Error.stackTraceLimit = 0; // most errors are simulated ones, and their stacks take time
  try {
    await simulation.run();
  } finally {
    await simulation.end();
    Error.stackTraceLimit = stackTraceLimit;
  }
}

interface Request {
  readonly tenant: ModelTenant;
  readonly resource: string;
  readonly user: ModelUser | undefined;
  readonly isWrite: boolean;
}

export class CacheSimulation {
  readonly world: CacheWorld;
  readonly installation: InstallationModel;
  readonly subject: CacheSubject;
  readonly #services: CachedService[] = [];
  /**
   * A slow run lasts longer than a response lives, and has so few processes and requests that polls of the write
   * monitor find databases without a connection.
   */
  readonly isSlow: boolean;
  /** True once only the final checks send requests. */
  #isQuiet = false;
  #names = 0;

  constructor(subject: CacheSubject, world: CacheWorld) {
    this.subject = subject;
    this.world = world;
    this.installation = new InstallationModel(world);
    this.isSlow = subject === 'responses' && world.random.chance(0.15);
    if (this.isSlow) world.slowShare = 0.001; // a slow message of the change feed empties the caches
  }

  get live(): readonly CachedService[] {
    return this.#services.filter(({ process }) => !process.isDead);
  }

  async run(): Promise<void> {
    const { world } = this;
    for (let count = world.random.integer(1, 2) + (this.isSlow ? 0 : 1); count > 0; count--) this.start();
    await world.advance(100);
    const faultsMs = this.isSlow ? 200_000 : 4_000;
    const faults = new CacheFaults(this, faultsMs);
    await world.advance(faultsMs);
    faults.end();
    await world.advance(recoveryMs);
    this.#isQuiet = true;
    await this.#checkServices();
    if (this.isSlow) await this.#checkRevalidation();
  }

  /** Ends all processes, so that nothing of the run goes on. */
  async end(): Promise<void> {
    for (const { process } of this.live) process.kill();
    await new Promise(resolve => setImmediate(resolve));
  }

  /** Starts a process. If its start fails, another one follows, as an operator's supervisor does it. */
  start(): void {
    if (this.live.length >= maxServices) return;
    const { world } = this;
    const service = new CachedService(this.installation, `p${this.#names++}`);
    const { process } = service;
    this.#services.push(service);
    world.trace(() => `start ${process.name}`);
    world.isSettled = false;
    service.start().then(
      () => this.#scheduleRequest(service),
      () => {
        if (process.isDead) return;
        process.kill();
        world.scheduler.after(500, () => this.start());
      },
    );
  }

  /** Sends a read of a user to a process. */
  read(service: CachedService, user: ModelUser): void {
    const resource = this.world.random.pick(resources) as string;
    this.#send(service, { tenant: user.tenant, resource, user, isWrite: false }).catch(() => {});
  }

  #scheduleRequest(service: CachedService): void {
    const { random, scheduler } = this.world;
    const isCalm = this.world.isCalm;
    scheduler.after(this.isSlow || isCalm ? random.between(1_000, 8_000) : random.between(5, 300), () => {
      if (service.process.isDead || this.#isQuiet) return;
      const first = this.#randomRequest();
      const isBurst = random.chance(0.2);
      const requests = isBurst ? [first, ...[1, 2, 3].map(() => this.#randomRequest(first))] : [first];
      for (const request of requests) this.#send(service, request).catch(() => {});
      this.#scheduleRequest(service);
    });
  }

  /** @param like another request, whose tenant and resource are those of half of the results */
  #randomRequest(like?: Request): Request {
    const { random, isCalm } = this.world;
    const user = this.subject === 'sessions' && random.chance(0.9) ? random.pick(this.installation.users) : undefined;
    const tenant = user?.tenant ?? (random.pick(this.installation.tenants) as ModelTenant);
    const resource = (this.isSlow ? resources[0] : random.pick(resources)) as string;
    const isWrite = !isCalm && this.subject === 'responses' && random.chance(this.isSlow ? 0.01 : 0.2);
    if (!like || random.chance(0.5)) return { tenant, resource, user, isWrite };
    return { ...like, isWrite: isWrite || (like.isWrite && random.chance(0.5)) };
  }

  /**
   * Sends a request, and checks what comes back.
   * @returns whether a read came from memory; undefined when the request failed or was refused
   */
  #send(service: CachedService, request: Request): Promise<boolean | undefined> {
    const { world } = this;
    const { name } = service.process;
    const { user, tenant, resource, isWrite } = request;
    return new Promise(resolve => {
      service.process.deliver(() => {
        const { detachedAt } = service.feedClient?.session ?? {};
        const exchange = { ...request, service, arrivedAt: world.now, detachedAt };
        const headers = user ? { authorization: `Bearer ${user.token}` } : { 'x-tenant': tenant.guid };
        const log = (result: string): void =>
          world.trace(() => `${name} ${isWrite ? 'write' : 'read'} ${tenant.guid.slice(-1)}/${resource} ${result}`);
        service.handle({ headers, resource, isWrite }).then(
          reply => {
            if (service.process.isDead) return;
            log(reply ? `version ${reply.version}${reply.isFromMemory ? ' from memory' : ''}` : 'committed');
            this.#report(name, reply && checkReply(exchange, reply));
            resolve(reply?.isFromMemory ?? false);
          },
          (error: Error) => {
            if (service.process.isDead) return;
            log(error.message);
            this.#report(name, checkRefusal(exchange, error));
            resolve(undefined);
          },
        );
      });
    });
  }

  #report(name: string, violation: string | undefined): void {
    if (violation !== undefined) this.world.fail(`${name}: ${violation}`);
  }

  /** Every service serves every tenant, and from memory at the latest the second time: a first response may expire. */
  async #checkServices(): Promise<void> {
    for (const service of this.live)
      for (const tenant of this.installation.tenants)
        for (const resource of resources) {
          const isFromMemory = await this.#require(service, tenant, resource, false);
          if (!isFromMemory) await this.#require(service, tenant, resource, true);
        }
  }

  /**
   * What nobody has changed is served from memory for longer than a response lives, if it was read when the statistics
   * had all earlier changes. The connections of the reads are closed meanwhile, so that a poll of the write monitor
   * finds the databases unused.
   */
  async #checkRevalidation(): Promise<void> {
    const { servers, tenants, control } = this.installation;
    await this.world.advance(statisticsMs);
    for (const { guid } of tenants) control.notify([`${changeTopics.responses}:${guid}`]);
    await this.world.advance(1_000);
    await this.#checkServices();
    await this.world.advance(expiredMs);
    for (const service of this.live)
      for (const tenant of this.installation.tenants)
        if (tenant.database.server === servers[0])
          for (const resource of resources) await this.#require(service, tenant, resource, true);
  }

  async #require(service: CachedService, tenant: ModelTenant, resource: string, fromMemory: boolean): Promise<boolean> {
    let isFromMemory: boolean | undefined;
    this.#send(service, { tenant, resource, user: undefined, isWrite: false }).then(
      result => (isFromMemory = result),
      () => {},
    );
    await this.world.advance(100);
    const { name } = service.process;
    if (isFromMemory === undefined) this.world.fail(`${name} serves nothing after the last fault`);
    else if (fromMemory && !isFromMemory) this.world.fail(`${name} reads again what nobody has changed`);
    await this.world.advance(0);
    return isFromMemory ?? false;
  }
}
