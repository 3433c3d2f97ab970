import type { MikroORM } from '@mikro-orm/postgresql';
import type { Context, Middleware } from 'koa';
import compose from 'koa-compose';
import { authenticate } from '../../../src/auth/authenticate.ts';
import type { ConnectionBudget } from '../../../src/connections/connection-budget.ts';
import { ReadMemory } from '../../../src/connections/read-memory.ts';
import type { TenantDatabases } from '../../../src/connections/tenant-databases.ts';
import { TenantDriver } from '../../../src/connections/tenant-driver.ts';
import { createAnnouncer } from '../../../src/control/announcer.ts';
import { ChangeFeed } from '../../../src/control/change-feed.ts';
import { createDirectory, type Directory } from '../../../src/control/directory.ts';
import type { TenantRecord } from '../../../src/control/records.ts';
import { problem } from '../../../src/errors.ts';
import { Country } from '../../../src/resources/country.ts';
import { ResponseCache } from '../../../src/response-cache/response-cache.ts';
import { WriteMonitor } from '../../../src/response-cache/write-monitor.ts';
import { permissionMissing } from '../../../src/tenancy/define-route.ts';
import type { RequestContext } from '../../../src/tenancy/request-context.ts';
import { createTenantOrm } from '../../../src/tenancy/tenant-orm.ts';
import { tenantRouter } from '../../../src/tenancy/tenant-router.ts';
import { VerifiedTokens } from '../../../src/tenancy/verified-tokens.ts';
import { connectControl, FeedClient } from './control-connections.ts';
import { type InstallationModel, permission, secretBytes } from './installation-model.ts';
import { TenantConnections } from './tenant-connections.ts';
import { VirtualProcess } from './virtual-process.ts';

/** What a request returns. */
export interface Reply {
  readonly tenant: string;
  readonly resource: string;
  readonly version: number;
  readonly isFromMemory: boolean;
  /** The permissions of the caller, if the request has a token. */
  readonly permissions?: ReadonlySet<string> | undefined;
}

/** The request: of a tenant, or of the holder of a token. */
export interface SimulatedRequest {
  readonly headers: Readonly<Record<string, string>>;
  readonly resource: string;
  readonly isWrite: boolean;
}

/** Nothing is served from memory after this time without a response on the connection of the feed, in ms. */
const maxProofAgeMs = 1_000;
const maxResponseCacheBytes = 1_000_000;

interface RequestState {
  context: RequestContext;
  resource: string;
  isWrite: boolean;
  caller: { permissions: ReadonlySet<string> } | undefined;
  reply: Reply | undefined;
}

let orm: MikroORM | undefined;
const log = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} } as never;
const noDeadline = { passed: false, check: () => {}, onPass: () => () => {}, onEnd: () => {} };

/** A process of the service: the production caches, on simulated databases. */
export class CachedService {
  readonly process: VirtualProcess;
  readonly directory: Directory;
  readonly responseCache: ResponseCache;
  readonly feed: ChangeFeed;
  /** The connection of the feed that was opened last. */
  feedClient: FeedClient | undefined;
  readonly #installation: InstallationModel;
  readonly #writeMonitor: WriteMonitor;
  readonly #connections = new Map<string, TenantConnections>();
  readonly #drivers = new Map<string, TenantDriver>();
  readonly #read: Middleware;
  readonly #readWithToken: Middleware;
  readonly #maxConnections: number;

  constructor(installation: InstallationModel, name: string) {
    const { world, control } = installation;
    const maxEntries = world.random.integer(3, 6); // few, so that entries are evicted
    this.#installation = installation;
    this.#maxConnections = world.random.integer(1, 3);
    const process = new VirtualProcess(world, name);
    const { clock } = process;
    const database = connectControl(world, control, process);
    const announce = createAnnouncer(database);
    this.process = process;
    this.feed = new ChangeFeed({
      url: installation.controlUrl,
      announce,
      log,
      clock,
      createClient: config => {
        this.feedClient = new FeedClient(world, control, process, config);
        return this.feedClient as never;
      },
    });
    const shared = { control: database, controlUrl: installation.controlUrl, log };
    this.directory = createDirectory({
      ...shared,
      feed: this.feed,
      secrets: { open: () => secretBytes } as never,
      clock,
      maxEntries,
    });
    const databases = this.#databases() as TenantDatabases;
    this.#writeMonitor = new WriteMonitor({ ...shared, databases, clock });
    this.responseCache = new ResponseCache({
      feed: this.feed,
      announce,
      writeMonitor: this.#writeMonitor,
      maxBytes: maxResponseCacheBytes,
      now: clock.now,
      random: () => world.random.next(),
    });
    const tokens = new VerifiedTokens(this.directory, maxEntries);
    const verifiedTokens = {
      find: token => {
        const verified = tokens.find(token);
        if (verified) this.#requireProof('a verified token');
        return verified;
      },
      add: (token, verified) => tokens.add(token, verified),
    } as Pick<VerifiedTokens, 'find' | 'add'> as VerifiedTokens;
    const services = { databases, directory: this.directory, responseCache: this.responseCache, verifiedTokens };
    const router = (anonymous: boolean): Middleware => tenantRouter({ ...services, anonymous });
    const authentication = authenticate({
      ...services,
      tokens: installation.tokens,
      usage: { count: () => {} } as never,
    });
    this.#read = compose([router(true), ctx => this.#respond(ctx)]);
    this.#readWithToken = compose([router(false), authentication, requirePermission, ctx => this.#respond(ctx)]);
  }

  /** Starts the feed and the write monitor. @throws when the control database cannot be reached */
  async start(): Promise<void> {
    await this.feed.start();
    this.#writeMonitor.start(() => this.responseCache.counts.hits + this.responseCache.counts.misses);
  }

  get connections(): readonly TenantConnections[] {
    return [...this.#connections.values()];
  }

  /** @returns the reply of a read @throws what the client would receive */
  async handle({ headers, resource, isWrite }: SimulatedRequest): Promise<Reply | undefined> {
    const rawHeaders = Object.entries(headers).flat();
    const state = { traceId: '', ipAddress: '', deadline: noDeadline, resource, isWrite };
    const ctx = { req: { headers, rawHeaders }, res: {}, state, set: () => {} } as unknown as Context;
    await (headers.authorization ? this.#readWithToken : this.#read)(ctx, async () => {});
    return ctx.state.reply;
  }

  async #respond({ state }: Context): Promise<void> {
    const { context, resource, isWrite, caller } = state as RequestState;
    const statement = (name: string) => ({ name, text: '', values: [resource] });
    if (isWrite) {
      const isWhole = this.#installation.world.random.chance(0.5);
      const withActor = isWhole && { withActor: () => statement('simulated_change') };
      await context.write(async () => ({ ...statement('simulated_write'), ...withActor }), resource);
      return;
    }
    const { counts } = this.responseCache;
    const hits = counts.hits;
    const loading = context.cached(
      resource,
      'list',
      () => statement('simulated_read'),
      ([row]) => row,
    );
    const isFromMemory = counts.hits > hits;
    if (isFromMemory) this.#requireProof('a cached response');
    const { body } = await loading;
    state.reply = { ...JSON.parse(String(body)), isFromMemory, permissions: caller?.permissions };
  }

  #requireProof(served: string): void {
    const { world } = this.#installation;
    const age = world.now - (this.feedClient?.provenAt ?? Number.NEGATIVE_INFINITY);
    if (age > maxProofAgeMs) world.fail(`${this.process.name} serves ${served}: the feed was proved ${age} ms ago`);
  }

  #databases(): Pick<TenantDatabases, 'open' | 'budgets' | 'lastUsedOn'> {
    const { world } = this.#installation;
    const open = (tenant: TenantRecord): TenantDriver => {
      if (tenant.status !== 'active') throw problem('tenant_inactive');
      let driver = this.#drivers.get(tenant.databaseUrl);
      if (!driver) {
        const database = this.#installation.databaseOf(tenant.databaseUrl);
        const connections = new TenantConnections(world, this.process, database, this.#maxConnections);
        this.#connections.set(tenant.databaseUrl, connections);
        orm ??= createTenantOrm([Country]);
        driver = new TenantDriver(orm, {
          url: tenant.databaseUrl,
          expected: { guid: tenant.guid, head: '' },
          budget: connections as unknown as ConnectionBudget,
          readMemory: new ReadMemory(1_000_000),
          connectTimeoutMs: 3_000,
        });
      }
      this.#drivers.delete(tenant.databaseUrl); // the last one is the one used last
      this.#drivers.set(tenant.databaseUrl, driver);
      return driver;
    };
    const addressOf = (url: string): string => new URL(url).host;
    return {
      open,
      budgets: { all: new Map() } as unknown as TenantDatabases['budgets'],
      lastUsedOn: server => [...this.#drivers].findLast(([url]) => addressOf(url) === server)?.[1],
    };
  }
}

const requirePermission: Middleware = (ctx, next) => {
  if (!ctx.state.caller.permissions.has(permission)) throw permissionMissing(permission);
  return next();
};
