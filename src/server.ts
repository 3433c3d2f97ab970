import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import { createApp } from './app.ts';
import { createMail } from './auth/mail.ts';
import { createPasswords, type Passwords } from './auth/passwords.ts';
import { createUsageCounter } from './auth/usage-counter.ts';
import { createBackgroundTasks } from './background-tasks.ts';
import type { Config } from './config.ts';
import { TenantDatabases } from './connections/tenant-databases.ts';
import { createAnnouncer } from './control/announcer.ts';
import { ChangeFeed } from './control/change-feed.ts';
import { createDirectory } from './control/directory.ts';
import { createManagementServer } from './http/management.ts';
import { createRateLimitStore } from './http/rate-limit/rate-limit-store.ts';
import { requestListener } from './http/request-listener.ts';
import { bodyLimits } from './http/route.ts';
import type { Installation } from './installation.ts';
import { describeError } from './log.ts';
import { createMetrics } from './metrics.ts';
import { tenantHead } from './operator/migrations/migrate-tenants.ts';
import { OperatorError } from './operator-error.ts';
import { ResponseCache } from './response-cache/response-cache.ts';
import { WriteMonitor } from './response-cache/write-monitor.ts';
import { createTenantOrm } from './tenancy/tenant-orm.ts';
import { tenantEntities } from './tenant-entities.ts';

export interface RunningServer {
  /** Where the API and the health checks answer. */
  readonly port: number;
  readonly managementPort: number;
  readonly databases: TenantDatabases;
  readonly writeMonitor: WriteMonitor;
  /** Not ready any more, no new connections; what runs is finished. @returns false when something was cut off */
  stop(): Promise<boolean>;
}

interface ServerOptions {
  config: Config;
  installation: Installation;
  log: Logger;
  passwords?: Passwords;
  /** Unix time in milliseconds, for tests in which tokens expire and windows pass. */
  now?: () => number;
  /** Milliseconds that never go back, for tests in which kept answers grow old. */
  clock?: () => number;
}

const drainMs = 25_000; // below the 30 s after which orchestrators kill
const backgroundDrainMs = 3_000; // a mail server may take its time, the stop may not
const audience = 'sales-back-office';

/** Starts listening on an installation that is ready. */
export async function startServer({
  config,
  installation,
  log,
  passwords = createPasswords(),
  now,
  clock,
}: ServerOptions): Promise<RunningServer> {
  const { control, controlUrl, secrets, servers } = installation;
  const feed = new ChangeFeed(controlUrl, log);
  await feed.start();
  const directory = createDirectory({ control, feed, secrets, servers, log });
  const databases = new TenantDatabases({
    orm: createTenantOrm(tenantEntities),
    head: await tenantHead(),
    controlUrl,
    controlConnections: config.controlConnections + 1, // the change feed
    connectionBudget: config.connectionBudget,
    tenantConnections: config.tenantConnections,
    acquireTimeoutMs: config.acquireTimeoutMs,
  });
  const writeMonitor = new WriteMonitor({ control, controlUrl, databases, log, now: clock });
  const responseCache = new ResponseCache({
    feed,
    announce: createAnnouncer(control),
    watch: writeMonitor,
    maxBytes: config.responseCacheBytes,
    now: clock,
  });
  const metrics = createMetrics({ databases, responseCache, feed, passwords });
  const unixTime = () => Math.floor((now ?? Date.now)() / 1_000);
  const tokens = { issuer: config.publicUrl, audience, now: unixTime };
  const rateLimitStore = await createRateLimitStore({ redisUrl: config.redisUrl, log, now });
  const background = createBackgroundTasks(log);
  const usage = createUsageCounter(control, error =>
    log.warn({ err: describeError(error) }, 'uses of legacy tokens were not counted'),
  );
  const { smtpUrl, mailFrom, dataDir, publicUrl } = config;
  const sendMail = createMail({ smtpUrl, from: mailFrom, folder: join(dataDir, 'mail'), log });
  const stopping = new AbortController();
  const { signal } = stopping;
  const app = createApp({
    config,
    control,
    directory,
    passwords,
    secrets,
    tokens,
    usage,
    background,
    sendMail,
    publicUrl,
    databases,
    responseCache,
    metrics,
    rateLimitStore,
    stopping: signal,
    log,
  });

  const server = createApiServer(requestListener(app));
  const management = createManagementServer({ isReady: () => feed.current && !signal.aborted, metrics });
  try {
    await listen(server, config.port, config.host, 'PORT');
    await listen(management, config.managementPort, config.managementHost, 'MANAGEMENT_PORT');
  } catch (error) {
    server.close();
    rateLimitStore.close();
    await usage.stop();
    await feed.stop();
    throw error;
  }
  writeMonitor.start(() => responseCache.counts.hits + responseCache.counts.misses);
  return {
    port: portOf(server),
    managementPort: portOf(management),
    databases,
    writeMonitor,
    stop: async () => {
      stopping.abort();
      const finished = await drain(server);
      rateLimitStore.close();
      await Promise.race([background.drain(), delay(backgroundDrainMs, undefined, { ref: false })]);
      await usage.stop();
      await writeMonitor.stop();
      await databases.close();
      await feed.stop();
      management.closeAllConnections();
      await new Promise(resolve => management.close(resolve));
      return finished;
    },
  };
}

/** Slow and endless requests are ended; these limits are far above what a client of the API needs. */
function createApiServer(handle: (request: IncomingMessage, response: ServerResponse) => unknown): Server {
  const limits = {
    headersTimeout: 5_000,
    requestTimeout: 15_000,
    keepAliveTimeout: 5_000,
    connectionsCheckingInterval: 1_000,
    optimizeEmptyRequests: true, // a request without a body has nothing to be read: saves 2 µs
  };
  const server = createServer(limits, handle);
  server.maxHeadersCount = 100;
  // A client that asks first whether it may send its body is told no before it sends one that is too large.
  server.on('checkContinue', (request, response) => {
    if (!(Number(request.headers['content-length'] ?? 0) > bodyLimits.resource)) response.writeContinue();
    handle(request, response);
  });
  return server;
}

function listen(server: Server, port: number, host: string, variable: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      const reason =
        error.code === 'EADDRINUSE' ? 'is in use by another process' : `cannot be listened on (${error.code})`;
      reject(new OperatorError(`port ${port} on ${host} ${reason}: set ${variable} to another one`));
    });
    server.listen(port, host, resolve);
  });
}

function portOf(server: Server): number {
  const address = server.address();
  return typeof address === 'object' && address ? address.port : 0;
}

/** Refuses new connections and waits for the requests that run, but not for ever. */
async function drain(server: Server): Promise<boolean> {
  let finished = true;
  const closed = new Promise(resolve => server.close(resolve));
  // What is idle now, and what becomes idle: no client is to send one more request on it.
  const sweep = setInterval(() => server.closeIdleConnections(), 50);
  const timer = setTimeout(() => {
    finished = false;
    server.closeAllConnections();
  }, drainMs);
  await closed;
  clearInterval(sweep);
  clearTimeout(timer);
  return finished;
}
