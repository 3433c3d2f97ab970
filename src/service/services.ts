import type { Logger } from 'pino';
import { FailedLogins } from '../accounts/auth/failed-logins.ts';
import { ProviderStates } from '../accounts/auth/identities/provider-states.ts';
import { createPeopleLimits } from '../accounts/auth/limit-people.ts';
import { createPasswords, type Passwords } from '../accounts/auth/passwords.ts';
import { ProgramKeyUses } from '../accounts/auth/program-key-uses.ts';
import { createTokenSettings } from '../accounts/auth/token-settings.ts';
import { createUsageCounter } from '../accounts/auth/usage-counter.ts';
import { accountLinks } from '../accounts/mails/account-link.ts';
import { DeliverySource } from '../accounts/mails/delivery-source.ts';
import { type MailCounts, MailDispatcher } from '../accounts/mails/mail-dispatcher.ts';
import { addWebhookMails } from '../accounts/mails/mail-requests.ts';
import { openMailTransport } from '../accounts/mails/mail-transport.ts';
import { addEndingNotices } from '../accounts/mails/notice-requests.ts';
import { NoticeSource } from '../accounts/mails/notice-source.ts';
import { revokeWithoutFactor } from '../accounts/people/revoke-without-factor.ts';
import { RegularWork } from '../accounts/regular-work.ts';
import { Announcer } from '../control/announcer.ts';
import { Beat } from '../control/beat.ts';
import { ChangeFeed } from '../control/change-feed.ts';
import { closeIdleConnections } from '../control/control-pool.ts';
import { controlHead } from '../control/control-version.ts';
import { createDirectory } from '../control/directory.ts';
import { createFleetCounter } from '../control/fleet-counts.ts';
import type { Installation } from '../control/installation.ts';
import { readInstallationIdentity } from '../control/installation-id.ts';
import { reportMasterKey } from '../control/present-key.ts';
import { reportClock } from '../control/process-clock.ts';
import { newProcess } from '../control/process-identity.ts';
import { tenantHead } from '../control/tenant-head.ts';
import type { Config } from '../lib/config/config.ts';
import { wideNetworks } from '../lib/config/proxy-warnings.ts';
import { UnsentResponses } from '../lib/http/response/unsent-responses.ts';
import type { RequestOutcome } from '../lib/http/steps/access-log.ts';
import { createRateLimitStore } from '../lib/http/steps/rate-limit/rate-limit-store.ts';
import { createBackgroundTasks } from '../lib/log/background-tasks.ts';
import type { LogOutput } from '../lib/log/log-output.ts';
import { Providers } from '../lib/oidc/providers.ts';
import { Closing } from '../lib/runtime/closing.ts';
import { atMost } from '../lib/runtime/within.ts';
import { startTracing } from '../lib/tracing/start-tracing.ts';
import { ChangeStreams } from '../sales/events/change-streams.ts';
import { ChangeWatch } from '../sales/events/change-watch.ts';
import { HeldFeeds } from '../sales/events/held-feeds.ts';
import { ImportRunner } from '../sales/imports/import-runner.ts';
import { UsageRecorder } from '../sales/usage/usage-recorder.ts';
import { createUsageStore } from '../sales/usage/usage-store.ts';
import { readWebhooksOf } from '../sales/webhooks/made-webhooks.ts';
import { createWebhookSender } from '../sales/webhooks/send-webhook.ts';
import { WebhookDispatcher } from '../sales/webhooks/webhook-dispatcher.ts';
import { ResponseCache } from '../tenancy/response-cache/response-cache.ts';
import { createMetrics } from './metrics/metrics.ts';
import { joinProcesses, openDatabases } from './open-databases.ts';

export interface ServiceOptions {
  config: Config;
  installation: Pick<Installation, 'control' | 'controlUrl' | 'member' | 'pool' | 'secrets'>;
  log: Logger;
  passwords?: Passwords;
  /** Counts the lines that the log has dropped, for the metrics. */
  logOutput?: Pick<LogOutput, 'droppedLines'>;
  /** Unix time in milliseconds; replaced in tests where tokens expire. */
  now?: () => number;
  /**
   * A monotonic clock in milliseconds; replaced in tests where cached responses expire and rate
   * limit windows pass.
   */
  clock?: () => number;
}

/**
 * A process serves with its minimum if the control database confirms no further beat in this
 * time.
 */
const maxSettleMs = 10_000;
const backgroundDrainMs = 3_000; // a slow receiver of webhooks does not delay the stop for longer

/**
 * Makes the parts of the service on an open installation, without its servers: those of the
 * control database, of the tenants' databases, and of the API.
 * @throws {OperatorError} when the connection budget has no room for another process
 * @throws when the control database cannot be used
 */
export async function createServices(options: ServiceOptions) {
  const closing = new Closing();

  try {
    const control = await startControl(options, closing);
    const tenants = await startTenants(options, control, closing);
    const api = await startParts(options, control, tenants, closing);

    return {
      config: options.config,
      secrets: options.installation.secrets,
      log: options.log,
      trustedReceivers: options.config.trustedReceivers,
      trustedProviders: options.config.trustedProviders,
      appUrl: options.config.appUrl,
      mailRate: options.config.rateLimits.mails,
      passwordMinLength: options.config.passwordMinLength,
      ...control,
      ...tenants,
      ...api,
      /**
       * Waits for background tasks, at most `backgroundDrainMs`, and closes all connections but
       * the installation's.
       */
      close: (): Promise<void> => closing.close(),
    };
  } catch (error) {
    await closing.close();
    throw error;
  }
}

type Control = Awaited<ReturnType<typeof startControl>>;

/**
 * The parts of the process that use the control database: its place among the processes, the
 * feed of changes, the directory.
 */
async function startControl(
  { config, installation, log, now = Date.now }: ServiceOptions,
  closing: Closing,
) {
  const { controlUrl, member, pool, secrets } = installation;
  const heads = { tenant: await tenantHead(), control: await controlHead() };

  const beat = new Beat({
    pool,
    process: {
      ...(member?.process ?? newProcess('service')),
      heads,
      sharesLimits: config.redisUrl !== undefined,
      wideProxies: wideNetworks(config),
    },
    budget: config.connectionBudget,
    secrets,
    log,
  });
  closing.add(() => beat.leave());
  closing.add(() => closeIdleConnections(pool, 1));

  const feed = new ChangeFeed({ url: controlUrl, beat, log, processId: beat.process.id });
  closing.add(() => feed.stop());

  const control = await installation.control();
  beat.onChange(reportMasterKey(secrets, log));
  beat.onChange(reportClock(beat.clock, log));

  const announcer = new Announcer(control);
  closing.add(() => announcer.stop());

  const recorder = new UsageRecorder({ store: createUsageStore(control), log, now });
  closing.add(() => recorder.stop());

  const usage = createUsageCounter(control, log);
  closing.add(() => usage.stop());

  const keyUses = new ProgramKeyUses({ control, log, now });
  closing.add(() => keyUses.stop());

  const failedLogins = new FailedLogins({ control, log });
  closing.add(() => failedLogins.stop());

  return {
    control,
    heads,
    beat,
    feed,
    announce: announcer.announce,
    directory: createDirectory({ control, controlUrl, feed, secrets, log }),
    recorder,
    usage,
    keyUses,
    failedLogins,
  };
}

type Tenants = Awaited<ReturnType<typeof startTenants>>;

/**
 * Starts the tenants' databases, with the process's share of the connection budget, and the
 * watch that notices changes in them.
 */
async function startTenants(
  { config, installation, log, clock }: ServiceOptions,
  { control, heads, beat, feed, announce, directory, recorder }: Control,
  closing: Closing,
) {
  const databases = await openDatabases({
    config,
    installation,
    beat,
    head: heads.tenant,
    feed,
    onUsed: (guid, ms) => recorder.addDatabaseTime(guid, ms),
    log,
  });
  closing.add(() => databases.close());

  const changeWatch = new ChangeWatch({
    control,
    feed,
    announce,
    databases,
    directory,
    log,
    processId: beat.process.id,
  });
  closing.add(() => changeWatch.stop());
  databases.onCommit(guid => changeWatch.notify(guid));

  await feed.start(); // before the first beat, so that it comes back at once
  await joinProcesses(beat);
  await feed.requireDelivery();
  await directory.loadTenants();
  recorder.start();

  const responseCache = new ResponseCache({
    feed,
    announce,
    maxBytes: config.responseCacheBytes,
    now: clock,
  });

  return { databases, changeWatch, responseCache };
}

/** The parts that serve requests and go on after them: mails, webhooks, streams of changes. */
async function startParts(
  {
    config,
    installation,
    log,
    passwords = createPasswords(),
    logOutput = { droppedLines: 0 },
    now = Date.now,
    clock,
  }: ServiceOptions,
  { control, heads, beat, feed, directory, recorder }: Control,
  { databases, changeWatch, responseCache }: Tenants,
  closing: Closing,
) {
  const { secrets } = installation;
  const { process } = beat;
  const { id: installationId } = await readInstallationIdentity(control);
  const tokens = createTokenSettings({ installationId, now });
  const databaseNow = (): number => beat.clock.databaseTime(now());

  const heldFeeds = new HeldFeeds(log);
  const changeStreams = new ChangeStreams({
    watch: changeWatch,
    databases,
    heldFeeds,
    directory,
    now: tokens.now,
  });
  const imports = new ImportRunner(tenant => databases.budgets.of(tenant));

  const tracing = await startTracing(config.tracing, message =>
    log.warn({ event: 'tracing' }, message),
  );
  closing.add(() => tracing?.stop());

  const background = createBackgroundTasks(log);
  closing.add(() => atMost(background.drain(), backgroundDrainMs));

  const providerStates = new ProviderStates({ control, log });
  closing.add(() => providerStates.stop());

  const providers = new Providers({
    trusted: config.trustedProviders,
    now: () => databaseNow() / 1_000,
    onFetch: providerStates.note,
  });
  closing.add(() => providers.close());

  const transport = openMailTransport(config, log);
  closing.add(() => transport.close());

  const mailCounts: MailCounts = { sent: 0, failed: 0, refused: 0 };
  const sending = { directory, transport, counts: mailCounts, mailFrom: config.mailFrom, log };
  const mails = new MailDispatcher({
    ...sending,
    source: new DeliverySource({
      control,
      secrets,
      accountLink: accountLinks(config),
      publicUrl: config.publicUrl,
      rate: config.rateLimits.mails,
      processId: process.id,
    }),
  });
  closing.add(() => mails.stop());

  const notices = new MailDispatcher({
    ...sending,
    source: new NoticeSource({
      control,
      publicUrl: config.publicUrl,
      readWebhooks: (tenant, userId) => readWebhooksOf(databases, tenant, userId),
      log,
      processId: process.id,
    }),
  });
  closing.add(() => notices.stop());

  const regularWork = new RegularWork({
    now: databaseNow,
    work: async now => {
      if (await addEndingNotices(control, now)) notices.wake();
      await revokeWithoutFactor(control);
    },
  });
  closing.add(() => regularWork.stop());

  const webhooks = new WebhookDispatcher({
    control,
    directory,
    databases,
    background,
    processId: process.id,
    secrets,
    sender: createWebhookSender({ trusted: config.trustedReceivers }),
    beginTrace: () => tracing?.begin(),
    watch: changeWatch,
    heldFeeds,
    onDisabled: async (tenant, { url }, reason) => {
      await addWebhookMails(control, tenant.id, { host: new URL(url).host, reason });
      mails.wake();
    },
    now: databaseNow,
  });
  closing.add(() => webhooks.stop());

  const rateLimitStore = await createRateLimitStore({
    redisUrl: config.redisUrl,
    installationId,
    log,
    now: clock,
  });
  closing.add(() => rateLimitStore.close());

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
    mails: mailCounts,
    rateLimitStore,
    webhooks: webhooks.counts,
    heldFeeds,
    readFleet: createFleetCounter(control),
    schemaVersion: heads.tenant,
  });

  return {
    passwords,
    tokens,
    providers,
    now: databaseNow,
    imports,
    changeStreams,
    webhooks,
    mails,
    notices,
    regularWork,
    peopleLimits: createPeopleLimits(rateLimitStore, config.rateLimits.people),
    metrics,
    countRequest: (outcome: RequestOutcome): void => {
      metrics.count(outcome);
      if (outcome.tenant) recorder.count(outcome.tenant.guid, outcome);
    },
    rateLimitStore,
    tracing,
    processClock: beat.clock,
    unsentResponses,
  };
}
