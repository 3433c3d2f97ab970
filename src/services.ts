import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import { createPeopleLimits } from './auth/limit-people.ts';
import { createPasswords, type Passwords } from './auth/passwords.ts';
import { createTokenSettings } from './auth/token-settings.ts';
import { createUsageCounter } from './auth/usage-counter.ts';
import type { Config } from './config/config.ts';
import { Announcer } from './control/announcer.ts';
import { Beat } from './control/beat.ts';
import { ChangeFeed } from './control/change-feed.ts';
import { closeIdleConnections } from './control/control-pool.ts';
import { controlHead } from './control/control-version.ts';
import { createDirectory } from './control/directory.ts';
import { createFleetCounter } from './control/fleet-counts.ts';
import { readInstallationIdentity } from './control/installation-id.ts';
import { reportMasterKey } from './control/present-key.ts';
import { newProcess } from './control/process-identity.ts';
import { ChangeStreams } from './events/change-streams.ts';
import { ChangeWatch } from './events/change-watch.ts';
import { HeldFeeds } from './events/held-feeds.ts';
import type { RequestOutcome } from './http/access-log.ts';
import { createRateLimitStore } from './http/rate-limit/rate-limit-store.ts';
import { UnsentResponses } from './http/unsent-responses.ts';
import { ImportRunner } from './imports/import-runner.ts';
import type { Installation } from './installation.ts';
import { createBackgroundTasks } from './log/background-tasks.ts';
import type { LogOutput } from './log/log-output.ts';
import { accountLinks } from './mails/account-link.ts';
import { MailDispatcher } from './mails/mail-dispatcher.ts';
import { addWebhookMails } from './mails/mail-requests.ts';
import { openMailTransport } from './mails/mail-transport.ts';
import { createMetrics } from './metrics/metrics.ts';
import { joinProcesses, openDatabases } from './open-databases.ts';
import { tenantHead } from './operator/schema/tenant-head.ts';
import { ResponseCache } from './response-cache/response-cache.ts';
import { startTracing } from './tracing/start-tracing.ts';
import { UsageRecorder } from './usage/usage-recorder.ts';
import { createUsageStore } from './usage/usage-store.ts';
import { createWebhookSender } from './webhooks/send-webhook.ts';
import { WebhookDispatcher } from './webhooks/webhook-dispatcher.ts';

export interface ServiceOptions {
  config: Config;
  installation: Pick<Installation, 'control' | 'controlUrl' | 'member' | 'pool' | 'secrets'>;
  log: Logger;
  passwords?: Passwords;
  /** Counts the lines that the log has dropped, for the metrics. */
  logOutput?: Pick<LogOutput, 'droppedLines'>;
  /** Unix time in milliseconds; replaced in tests where tokens expire. */
  now?: () => number;
  /** A monotonic clock in milliseconds; replaced in tests where cached responses expire and rate limit windows pass. */
  clock?: () => number;
}

/** A process serves with its minimum if the control database confirms no further beat in this time. */
const maxSettleMs = 10_000;
const backgroundDrainMs = 3_000; // a slow receiver of webhooks does not delay the stop for longer

/**
 * Makes the parts of the service on an open installation, without its servers.
 * @throws {OperatorError} when the connection budget has no room for another process
 * @throws when the control database cannot be used
 */
export async function createServices(options: ServiceOptions) {
  const { config, installation, log } = options;
  const { pool, secrets, member } = installation;
  const heads = { tenant: await tenantHead(), control: await controlHead() };
  const beat = new Beat({
    pool,
    process: { ...(member?.process ?? newProcess('service')), heads, sharesLimits: config.redisUrl !== undefined },
    budget: config.connectionBudget,
    secrets,
    log,
  });

  const feed = new ChangeFeed({ url: installation.controlUrl, beat, log, processId: beat.process.id });

  try {
    return await createParts(options, { heads, beat, feed });
  } catch (error) {
    await feed.stop();
    await beat.leave();
    throw error;
  }
}

/** What a start that fails ends again. */
interface Joined {
  readonly heads: { readonly tenant: string; readonly control: string };
  readonly beat: Beat;
  readonly feed: ChangeFeed;
}

async function createParts(
  {
    config,
    installation,
    log,
    passwords = createPasswords(),
    logOutput = { droppedLines: 0 },
    now = Date.now,
    clock,
  }: ServiceOptions,
  { heads, beat, feed }: Joined,
) {
  const { controlUrl, secrets } = installation;
  const control = await installation.control();
  const { process } = beat;
  const announcer = new Announcer(control);
  const { announce } = announcer;
  beat.onChange(reportMasterKey(secrets, log));

  const directory = createDirectory({ control, controlUrl, feed, secrets, log });
  const recorder = new UsageRecorder({ store: createUsageStore(control), log, now });
  const databases = await openDatabases({
    config,
    installation,
    beat,
    head: heads.tenant,
    feed,
    onUsed: (guid, ms) => recorder.addDatabaseTime(guid, ms),
    onChanged: guid => changeWatch.notify(guid),
    log,
  });
  const changeWatch = new ChangeWatch({
    control,
    feed,
    announce,
    databases,
    directory,
    log,
    processId: process.id,
  });

  await feed.start(); // before the first beat, which so comes back at once
  await joinProcesses(beat);
  await feed.requireDelivery();
  recorder.start();

  const responseCache = new ResponseCache({
    feed,
    announce,
    maxBytes: config.responseCacheBytes,
    now: clock,
  });

  const { id: installationId } = await readInstallationIdentity(control);
  const tokens = createTokenSettings({ installationId, now });

  const heldFeeds = new HeldFeeds(log);
  const changeStreams = new ChangeStreams({ watch: changeWatch, databases, heldFeeds, directory, now: tokens.now });

  const rateLimitStore = await createRateLimitStore({
    redisUrl: config.redisUrl,
    installationId,
    log,
    now: clock,
  });

  const background = createBackgroundTasks(log);
  const leasing = { control, directory, databases, responseCache, background, processId: process.id };
  const imports = new ImportRunner(tenant => databases.budgets.of(tenant));
  const usage = createUsageCounter(control, log);

  const mails = new MailDispatcher({
    control,
    directory,
    secrets,
    transport: openMailTransport(config, log),
    mailFrom: config.mailFrom,
    accountLink: accountLinks(config),
    publicUrl: config.publicUrl,
    rate: config.rateLimits.mails,
    log,
    processId: process.id,
  });

  const tracing = await startTracing(config.tracing, message => log.warn({ event: 'tracing' }, message));
  const webhooks = new WebhookDispatcher({
    ...leasing,
    secrets,
    sender: createWebhookSender({ trusted: config.trustedReceivers }),
    beginTrace: () => tracing?.begin(),
    watch: changeWatch,
    heldFeeds,
    onDisabled: async (tenant, { url }, reason) => {
      await addWebhookMails(control, tenant.id, { host: new URL(url).host, reason });
      mails.wake();
    },
    now,
  });

  await beat.settle(maxSettleMs);
  const unsentResponses = new UnsentResponses();
  const metrics = createMetrics({
    databases,
    unsentResponses,
    responseCache,
    feed,
    secrets,
    passwords,
    logOutput,
    mails: mails.counts,
    rateLimitStore,
    webhooks: webhooks.counts,
    heldFeeds,
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
    imports,
    changeStreams,
    webhooks,
    trustedReceivers: config.trustedReceivers,
    now,
    mails,
    mailRate: config.rateLimits.mails,
    peopleLimits: createPeopleLimits(rateLimitStore, config.rateLimits.people),
    databases,
    responseCache,
    metrics,
    countRequest: (outcome: RequestOutcome) => {
      metrics.count(outcome);
      if (outcome.tenant) recorder.count(outcome.tenant.guid, outcome);
    },
    rateLimitStore,
    tracing,
    log,
    feed,
    unsentResponses,
    /** Waits for background tasks, at most `backgroundDrainMs`, and closes all connections but the installation's. */
    close: async (): Promise<void> => {
      rateLimitStore.close();
      webhooks.stop();
      await mails.stop();
      await Promise.race([background.drain(), delay(backgroundDrainMs, undefined, { ref: false })]);
      await changeWatch.stop();
      await usage.stop();
      await recorder.stop();
      await announcer.stop();
      await feed.stop();
      await closeIdleConnections(installation.pool, 1);
      await databases.close();
      await beat.leave();
      await tracing?.stop();
    },
  };
}
