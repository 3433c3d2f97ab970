import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import type { AppServices } from './app.ts';
import { accountLinks } from './auth/account-link.ts';
import { createMailLimits } from './auth/limit-mails.ts';
import { createPeopleLimits } from './auth/limit-people.ts';
import { countMails, createMail, tenantMails } from './auth/mail.ts';
import { createPasswords, type Passwords } from './auth/passwords.ts';
import { createTokenSettings } from './auth/token-settings.ts';
import { createUsageCounter } from './auth/usage-counter.ts';
import type { Config } from './config/config.ts';
import { createAnnouncer } from './control/announcer.ts';
import { ChangeFeed } from './control/change-feed.ts';
import { controlHead } from './control/control-version.ts';
import { closeIdleConnections } from './control/database.ts';
import { createDirectory } from './control/directory.ts';
import { createFleetCounter } from './control/fleet-counts.ts';
import { MasterKeyWatch } from './control/master-key-watch.ts';
import { newProcess } from './control/process-identity.ts';
import { ChangeStreams } from './events/change-streams.ts';
import { ChangeWatch } from './events/change-watch.ts';
import { createRateLimitStore } from './http/rate-limit/rate-limit-store.ts';
import type { SharedWindows } from './http/rate-limit/shared-windows.ts';
import { UnsentResponses } from './http/unsent-responses.ts';
import { createImportRunner } from './imports/import-runner.ts';
import type { Installation } from './installation.ts';
import { createBackgroundTasks } from './log/background-tasks.ts';
import { describeError } from './log/describe-error.ts';
import type { LogOutput } from './log/log-output.ts';
import { createMetrics, type Metrics } from './metrics/metrics.ts';
import { minControlConnections, openDatabases } from './open-databases.ts';
import { tenantHead } from './operator/schema/tenant-head.ts';
import { disabledWebhookMail } from './people/disabled-webhook-mail.ts';
import { ResponseCache } from './response-cache/response-cache.ts';
import { WriteMonitor } from './response-cache/write-monitor.ts';
import { startTracing } from './tracing/start-tracing.ts';
import { SizeSampler } from './usage/size-sampler.ts';
import { UsageRecorder } from './usage/usage-recorder.ts';
import { createUsageStore } from './usage/usage-store.ts';
import { createWebhookSender } from './webhooks/send-webhook.ts';
import { createWebhookDispatcher, type WebhookDispatcher } from './webhooks/webhook-dispatcher.ts';

export interface ServiceOptions {
  config: Config;
  installation: Pick<Installation, 'control' | 'controlUrl' | 'secrets' | 'member'>;
  log: Logger;
  passwords?: Passwords;
  /** Counts the lines that the log has dropped, for the metrics. */
  logOutput?: Pick<LogOutput, 'droppedLines'>;
  /** The windows of rate limits in the primary process, for a worker. */
  primary?: SharedWindows;
  /** Unix time in milliseconds; replaced in tests where tokens expire and rate limit windows pass. */
  now?: () => number;
  /** A monotonic clock in milliseconds; replaced in tests where cached responses expire. */
  clock?: () => number;
}

/** The parts of a running process, without its servers. */
export interface Services extends Omit<AppServices, 'deadlineMs' | 'draining'> {
  readonly feed: ChangeFeed;
  readonly masterKey: MasterKeyWatch;
  readonly metrics: Metrics;
  readonly writeMonitor: WriteMonitor;
  readonly unsentResponses: UnsentResponses;
  readonly sizes: SizeSampler;
  readonly webhooks: WebhookDispatcher;
  /** Waits for background tasks, at most `backgroundDrainMs`, and closes all connections but the installation's. */
  close(): Promise<void>;
}

const backgroundDrainMs = 3_000; // a slow mail server does not delay the stop for longer
/**
 * Maximum memory of responses that clients have not received: 4 of the largest pages, or 9 of the largest lists. With
 * the large reads, and what a garbage collection has not yet freed of both, a process grows by at most some 350 MiB.
 */
const maxUnsentBytes = 64 * 1024 * 1024;

/**
 * Makes the parts of the service on an open installation.
 * @throws when the control database cannot be used
 */
export async function createServices({
  config,
  installation,
  log,
  passwords = createPasswords(),
  logOutput = { droppedLines: 0 },
  primary,
  now,
  clock,
}: ServiceOptions): Promise<Services> {
  const { control, controlUrl, secrets, member } = installation;
  const announce = createAnnouncer(control);
  const process = member?.process ?? newProcess('service');
  const feed = new ChangeFeed({
    url: controlUrl,
    announce,
    log,
    processId: process.id,
    mayConnect: () => databases.maxControl >= minControlConnections,
  });
  const masterKey = new MasterKeyWatch({ control: control.em, secrets, feed, log });
  const directory = createDirectory({ control, controlUrl, feed, secrets, log });
  const heads = { tenant: await tenantHead(), control: await controlHead() };
  const usageStore = createUsageStore(control, process, randomUUID());
  const recorder = new UsageRecorder({ store: usageStore, log, now: now ?? Date.now });
  const databases = await openDatabases({
    config,
    installation,
    process,
    heads,
    feed,
    directory,
    onUsed: (guid, ms) => recorder.addDatabaseTime(guid, ms),
    onChanged: guid => changeWatch.notify(guid),
    log,
  });
  const changeWatch = new ChangeWatch({
    ...{ control, controlUrl, feed, announce, databases, directory, log },
    processId: process.id,
  });
  await feed.start();
  await masterKey.check();
  await recorder.start();
  const writeMonitor = new WriteMonitor({ control, controlUrl, databases, log, now: clock });
  const responseCache = new ResponseCache({
    feed,
    announce,
    writeMonitor,
    maxBytes: config.responseCacheBytes,
    now: clock,
  });
  const tokens = await createTokenSettings({ control, publicUrl: config.publicUrl, now });
  const changeStreams = new ChangeStreams({ watch: changeWatch, databases, directory, now: tokens.now });
  const rateLimitStore = await createRateLimitStore({ redisUrl: config.redisUrl, primary, log, now });
  const background = createBackgroundTasks(log);
  const imports = createImportRunner({
    control,
    directory,
    databases,
    responseCache,
    background,
    processId: process.id,
  });
  const usage = createUsageCounter(control, error =>
    log.warn({ err: describeError(error) }, 'the uses of legacy tokens could not be stored'),
  );
  const { smtpUrl, mailFrom, dataDir } = config;
  const mails = countMails(createMail({ smtpUrl, folder: join(dataDir, 'mail'), log }));
  const sendMail = tenantMails(mails.send, mailFrom, log);
  const tracing = await startTracing(config.tracing, message => log.warn({ event: 'tracing' }, message));
  const webhookSender = createWebhookSender({ trusted: config.trustedReceivers });
  const webhooks = createWebhookDispatcher({
    control,
    secrets,
    directory,
    databases,
    responseCache,
    background,
    sender: webhookSender,
    beginTrace: () => tracing?.begin(),
    watch: (guid, wake) => changeWatch.subscribe(guid, wake, false),
    onDisabled: disabledWebhookMail(control, sendMail, config.publicUrl),
    processId: process.id,
    now: now ?? Date.now,
  });
  const unsentResponses = new UnsentResponses(maxUnsentBytes);
  const sizes = new SizeSampler({ store: usageStore, directory, databases, log });
  const metrics = createMetrics({
    databases,
    unsentResponses,
    responseCache,
    feed,
    masterKey,
    passwords,
    logOutput,
    mails: mails.counts,
    rateLimitStore,
    webhooks: webhooks.counts,
    readFleet: createFleetCounter(control),
    schemaVersion: heads.tenant,
  });
  return {
    config,
    control,
    directory,
    passwords,
    secrets,
    tokens,
    usage,
    background,
    imports,
    changeStreams,
    webhooks,
    trustedReceivers: config.trustedReceivers,
    now: now ?? Date.now,
    sendMail,
    mailLimits: createMailLimits(rateLimitStore, config.rateLimits.mails),
    peopleLimits: createPeopleLimits(rateLimitStore, config.rateLimits.people),
    accountLink: accountLinks(config),
    databases,
    responseCache,
    metrics,
    countRequest: outcome => {
      metrics.count(outcome);
      if (outcome.tenant) recorder.count(outcome.tenant.guid, outcome);
    },
    sizes,
    rateLimitStore,
    tracing,
    log,
    feed,
    masterKey,
    writeMonitor,
    unsentResponses,
    close: async () => {
      masterKey.stop();
      rateLimitStore.close();
      imports.stop();
      webhooks.stop();
      await Promise.race([background.drain(), delay(backgroundDrainMs, undefined, { ref: false })]);
      await changeWatch.stop();
      await webhookSender.close();
      await usage.stop();
      await sizes.stop();
      await recorder.stop();
      await writeMonitor.stop();
      await feed.stop();
      await closeIdleConnections(control, 1);
      await databases.close();
      await tracing?.stop();
    },
  };
}
