import type { Server } from 'node:http';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import { createApp } from './app.ts';
import { countMails, createMail } from './auth/mail.ts';
import { createPasswords, type Passwords } from './auth/passwords.ts';
import { createUsageCounter } from './auth/usage-counter.ts';
import { createBackgroundTasks } from './background-tasks.ts';
import type { Config } from './config.ts';
import { TenantDatabases } from './connections/tenant-databases.ts';
import { createAnnouncer } from './control/announcer.ts';
import { ChangeFeed } from './control/change-feed.ts';
import { controlServerIdentity } from './control/database.ts';
import { createDirectory } from './control/directory.ts';
import { createFleetCounter } from './control/fleet-counts.ts';
import { readInstallationIdentity } from './control/installation-id.ts';
import { requestDeadlineMs } from './deadline.ts';
import { createApiServer } from './http/api-server.ts';
import { createManagementServer } from './http/management.ts';
import { createRateLimitStore } from './http/rate-limit/rate-limit-store.ts';
import { hashKey } from './http/rate-limit/rate-limits.ts';
import { requestListener } from './http/request-listener.ts';
import type { Installation } from './installation.ts';
import { describeError } from './log.ts';
import type { LogOutput } from './log-output.ts';
import { createMetrics } from './metrics/metrics.ts';
import { tenantHead } from './operator/schema/tenant-head.ts';
import { OperatorError } from './operator-error.ts';
import { ResponseCache } from './response-cache/response-cache.ts';
import { WriteMonitor } from './response-cache/write-monitor.ts';
import { createTenantOrm } from './tenancy/tenant-orm.ts';
import { tenantEntities } from './tenant-entities.ts';

export interface RunningServer {
  /** Ports of the API, and of the health checks and metrics. */
  readonly port: number;
  readonly managementPort: number;
  readonly databases: TenantDatabases;
  readonly writeMonitor: WriteMonitor;
  /**
   * Becomes not ready, goes on serving for `delayMs` milliseconds so that balancers notice, then refuses new
   * connections and finishes running requests.
   * @returns false when requests were cut off
   */
  stop(delayMs?: number): Promise<boolean>;
}

interface ServerOptions {
  config: Config;
  installation: Pick<Installation, 'control' | 'controlUrl' | 'secrets'>;
  log: Logger;
  passwords?: Passwords;
  /** Counts the lines that the log has dropped, for the metrics. */
  logOutput?: Pick<LogOutput, 'droppedLines'>;
  /** Unix time in milliseconds; replaced in tests where tokens expire and rate limit windows pass. */
  now?: () => number;
  /** A monotonic clock in milliseconds; replaced in tests where cached responses expire. */
  clock?: () => number;
  /** Maximum time of a request, in milliseconds; shortened in tests. */
  deadlineMs?: number;
}

const maxStopMs = 25_000; // less than the 30 s after which orchestrators kill a process
const backgroundDrainMs = 3_000; // a slow mail server does not delay the stop for longer
const audience = 'sales-back-office';
/**
 * Earlier builds named PUBLIC_URL as the issuer of tokens. Such tokens are accepted if they were issued within 24 h
 * after the control database got its id: the time that an upgrade may take, in which processes of the earlier build
 * still run.
 */
const formerIssuerSeconds = 24 * 3_600;

/**
 * Puts the parts of the service together on an open installation, and listens.
 * @throws {OperatorError} when a port cannot be listened on
 */
export async function startServer({
  config,
  installation,
  log,
  passwords = createPasswords(),
  logOutput = { droppedLines: 0 },
  now,
  clock,
  deadlineMs = requestDeadlineMs,
}: ServerOptions): Promise<RunningServer> {
  const { control, controlUrl, secrets } = installation;
  const announce = createAnnouncer(control);
  const feed = new ChangeFeed({ url: controlUrl, announce, log });
  await feed.start();
  const directory = createDirectory({ control, controlUrl, feed, secrets, log });
  const schemaVersion = await tenantHead();
  const databases = new TenantDatabases({
    orm: createTenantOrm(tenantEntities),
    head: schemaVersion,
    controlUrl,
    controlIdentity: await controlServerIdentity(control),
    controlConnections: config.controlConnections + 1, // the change feed
    connectionBudget: config.connectionBudget,
    tenantConnections: config.tenantConnections,
    acquireTimeoutMs: config.acquireTimeoutMs,
  });
  const writeMonitor = new WriteMonitor({ control, controlUrl, databases, log, now: clock });
  const responseCache = new ResponseCache({
    feed,
    announce,
    writeMonitor,
    maxBytes: config.responseCacheBytes,
    now: clock,
  });
  const unixTime = () => Math.floor((now ?? Date.now)() / 1_000);
  const { id: issuer, since } = await readInstallationIdentity(control);
  const formerIssuer = { name: config.publicUrl, until: since + formerIssuerSeconds };
  const tokens = { issuer, formerIssuer, audience, now: unixTime };
  const rateLimitStore = await createRateLimitStore({ redisUrl: config.redisUrl, log, now });
  const background = createBackgroundTasks(log);
  const usage = createUsageCounter(control, error =>
    log.warn({ err: describeError(error) }, 'the uses of legacy tokens could not be stored'),
  );
  const { smtpUrl, mailFrom, dataDir, publicUrl } = config;
  const mails = countMails(createMail({ smtpUrl, from: mailFrom, folder: join(dataDir, 'mail'), log }));
  const metrics = createMetrics({
    databases,
    responseCache,
    feed,
    passwords,
    logOutput,
    mails: mails.counts,
    rateLimitStore,
    readFleet: createFleetCounter(control),
    schemaVersion,
  });
  const allowMail = async (tenantGuid: string, email: string): Promise<boolean> =>
    (await rateLimitStore.hit(`rl:mail:${hashKey(tenantGuid, email)}`, config.rateLimits.mails)).remaining > 0;
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
    sendMail: mails.send,
    allowMail,
    publicUrl,
    databases,
    responseCache,
    metrics,
    rateLimitStore,
    deadlineMs,
    stopping: signal,
    log,
  });

  const api = createApiServer({ handle: requestListener(app), keepAliveMs: config.keepAliveMs });
  const management = createManagementServer({ isReady: () => feed.current && !signal.aborted, metrics });
  try {
    await listen(api.http, config.port, config.host, '');
    await listen(management, config.managementPort, config.managementHost, 'MANAGEMENT_');
  } catch (error) {
    api.http.close();
    rateLimitStore.close();
    await usage.stop();
    await feed.stop();
    throw error;
  }
  writeMonitor.start(() => responseCache.counts.hits + responseCache.counts.misses);
  return {
    port: portOf(api.http),
    managementPort: portOf(management),
    databases,
    writeMonitor,
    stop: async (delayMs = 0) => {
      stopping.abort();
      if (delayMs > 0) await delay(delayMs);
      const finished = await api.drain(maxStopMs - delayMs);
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

/** @param prefix of the variables that hold host and port: '' or `MANAGEMENT_` */
function listen(server: Server, port: number, host: string, prefix: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => reject(listenError(error.code ?? '', port, host, prefix)));
    server.listen(port, host, resolve);
  });
}

function listenError(code: string, port: number, host: string, prefix: string): OperatorError {
  if (code === 'EADDRINUSE')
    return new OperatorError(`port ${port} on ${host} is in use by another process: set ${prefix}PORT to another one`);
  if (code === 'EACCES')
    return new OperatorError(`this login may not listen on port ${port}: set ${prefix}PORT to one above 1023`);
  const remedy = `set ${prefix}HOST to an address of this machine, or to 0.0.0.0 for all of them`;
  return new OperatorError(`${host} is not an address that this process can listen on (${code}): ${remedy}`);
}

function portOf(server: Server): number {
  const address = server.address();
  return typeof address === 'object' && address ? address.port : 0;
}
