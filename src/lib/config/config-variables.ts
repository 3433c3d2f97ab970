import { z } from 'zod';
import {
  backupLocation,
  count,
  duration,
  forwardedHeader,
  hops,
  httpUrl,
  mailSender,
  masterKey,
  origins,
  originUrl,
  pageAddress,
  port,
  postgresUrl,
  processes,
  rate,
  recipients,
  redisUrl,
  retention,
  smtpUrl,
  trustedPeers,
} from './config-values.ts';
import { maxWorkers, processCount } from './process-count.ts';
import { tracingVariables } from './tracing-settings.ts';
import { trustedProviders } from './trusted-providers.ts';
import { trustedReceivers } from './trusted-receivers.ts';

/**
 * The environment variables of the settings: the form of each, and its default.
 * `.env.example` explains them.
 */
export const variables = z
  .object({
    PROCESSES: processes.default(1),
    PORT: port.default(3000),
    HOST: z.string().default('127.0.0.1'),
    MANAGEMENT_PORT: port.default(3001),
    MANAGEMENT_HOST: z.string().default('127.0.0.1'),
    DATABASE_URL: postgresUrl.optional(),
    MASTER_KEY: masterKey.optional(),
    DATA_DIR: z.string().default('.data'),
    PUBLIC_URL: originUrl.optional(),
    APP_URL: pageAddress.optional(),
    DOCS: z.enum(['public', 'api', 'off'], 'must be one of public, api, off').default('public'),
    SMTP_URL: smtpUrl.optional(),
    MAIL_FROM: mailSender.default('Sales back office <no-reply@localhost>'),
    MASTER_KEY_PREVIOUS: masterKey.optional(),
    TRUSTED_PROXIES: trustedPeers.default({ networks: [], unixSocket: false }),
    TRUSTED_HOPS: hops.optional(),
    TRUSTED_HEADER: forwardedHeader.default('x-forwarded-for'),
    CORS_ORIGINS: origins.default([]),
    REDIS_URL: redisUrl.optional(),
    PASSWORD_MIN_LENGTH: count.refine(min => min >= 8 && min <= 64, 'must be 8 to 64').default(15),
    RATE_LIMIT_GLOBAL: rate.default({ max: 500, windowMs: 60_000 }),
    RATE_LIMIT_LOGIN: rate.optional(),
    RATE_LIMIT_FAILURES: rate.default({ max: 100, windowMs: 86_400_000 }),
    RATE_LIMIT_MAILS: rate.default({ max: 3, windowMs: 900_000 }),
    RATE_LIMIT_PEOPLE: rate.default({ max: 1_000, windowMs: 86_400_000 }),
    RATE_LIMIT_ACCOUNT: rate.default({ max: 10, windowMs: 900_000 }),
    RATE_LIMIT_TOKEN: rate.default({ max: 5, windowMs: 60_000 }),
    LOG_LEVEL: z
      .enum(
        ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'],
        'must be one of trace, debug, info, warn, error, fatal, silent',
      )
      .default('info'),
    CONTROL_CONNECTIONS: count.refine(most => most >= 2, 'must be at least 2').default(8),
    CONNECTION_BUDGET: count.default(80),
    TENANT_CONNECTIONS: count.default(8),
    RESPONSE_CACHE_MB: count.default(64),
    ACQUIRE_TIMEOUT_MS: count.default(3_000),
    KEEP_ALIVE_TIMEOUT: duration.default(75_000),
    SHUTDOWN_DELAY: duration
      .refine(ms => ms <= 20_000, 'must be at most 20s: the whole stop takes at most 25 s')
      .default(5_000),
    WEBHOOK_TRUSTED_RECEIVERS: trustedReceivers.default([]),
    TRUSTED_PROVIDERS: trustedProviders.default([]),
    BACKUP_TARGET: backupLocation.optional(),
    BACKUP_RECIPIENTS: recipients.default([]),
    BACKUP_IDENTITY_FILE: z.string().optional(),
    BACKUP_KEEP: retention.default({
      allMs: 6 * 3_600_000,
      hours: 48,
      days: 14,
      weeks: 8,
      months: 12,
    }),
    AWS_ACCESS_KEY_ID: z.string().optional(),
    AWS_SECRET_ACCESS_KEY: z.string().optional(),
    AWS_SESSION_TOKEN: z.string().optional(),
    AWS_REGION: z.string().optional(),
    AWS_ENDPOINT_URL: httpUrl.optional(),
    ...tracingVariables,
  })
  .refine(env => env.REDIS_URL || processCount(env).count === 1, {
    path: ['PROCESSES'],
    message:
      'above 1 needs REDIS_URL, in which the processes count the limits of requests together: ' +
      'set REDIS_URL, or set PROCESSES to 1',
  })
  .refine(
    env =>
      env.CONNECTION_BUDGET >= 8 && processCount(env).count <= maxWorkers(env.CONNECTION_BUDGET),
    {
      path: ['CONNECTION_BUDGET'],
      message:
        'must be at least 8, and with PROCESSES above 1 at least 4 × (PROCESSES + 2): each process needs 4 connections, ' +
        'also the one that starts before another one ends',
    },
  )
  .refine(
    ({ TRUSTED_HOPS, TRUSTED_PROXIES: { networks, unixSocket } }) =>
      TRUSTED_HOPS === undefined || networks.length > 0 || unixSocket,
    {
      path: ['TRUSTED_HOPS'],
      message:
        'needs TRUSTED_PROXIES, which names the peers whose header is read: set TRUSTED_PROXIES to the addresses ' +
        'of the last proxy, or unset TRUSTED_HOPS',
    },
  )
  .refine(env => !env.DATABASE_URL || env.MASTER_KEY, {
    path: ['MASTER_KEY'],
    message: 'is required when DATABASE_URL is set: set it, or MASTER_KEY_FILE',
  });
