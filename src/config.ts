import { resolve } from 'node:path';
import { z } from 'zod';
import { count, duration, masterKey, port, rate, trustedProxies, url } from './config-values.ts';

/** The settings of one process, checked and frozen. Each has a line in `.env.example`. */
export type Config = Readonly<ReturnType<typeof toConfig>>;

/** Names every variable that is wrong and what is expected of it; never its value. */
export class ConfigError extends Error {
  override name = 'ConfigError';
}

/**
 * Reads the environment once. An empty variable counts as not set.
 * @throws {ConfigError} listing every problem found
 */
export function readConfig(environment: NodeJS.ProcessEnv = process.env): Config {
  const set = Object.fromEntries(Object.entries(environment).filter(([, value]) => value?.trim()));
  const renamed = Object.entries(renamedVariables).filter(([old]) => set[old] !== undefined);
  if (renamed.length > 0) throw new ConfigError(renamed.map(([old, now]) => `${old} is now called ${now}`).join('; '));
  const parsed = variables.safeParse(set);
  if (!parsed.success) {
    throw new ConfigError(parsed.error.issues.map(issue => `${issue.path.join('.')} ${issue.message}`).join('; '));
  }
  return Object.freeze(toConfig(parsed.data));
}

/** Variables of earlier versions, which are refused: a setting that is silently ignored misleads its operator. */
const renamedVariables = { KEPT_ANSWERS_MB: 'RESPONSE_CACHE_MB' };

const variables = z
  .object({
    PORT: port.default(3000),
    HOST: z.string().default('127.0.0.1'),
    MANAGEMENT_PORT: port.default(3001),
    MANAGEMENT_HOST: z.string().default('127.0.0.1'),
    DATABASE_URL: url('postgres:', 'postgresql:').optional(),
    MASTER_KEY: masterKey.optional(),
    DATA_DIR: z.string().default('.data'),
    PUBLIC_URL: url('http:', 'https:').optional(),
    SMTP_URL: url('smtp:', 'smtps:').optional(),
    MAIL_FROM: z.string().default('Sales back office <no-reply@localhost>'),
    MASTER_KEY_PREVIOUS: masterKey.optional(),
    TRUSTED_PROXIES: trustedProxies.default({ networks: [], unixSocket: false }),
    REDIS_URL: url('redis:', 'rediss:').optional(),
    RATE_LIMIT_GLOBAL: rate.default({ max: 500, windowMs: 60_000 }),
    RATE_LIMIT_LOGIN: rate.default({ max: 5, windowMs: 900_000 }),
    RATE_LIMIT_ACCOUNT: rate.default({ max: 10, windowMs: 900_000 }),
    RATE_LIMIT_TOKEN: rate.default({ max: 5, windowMs: 60_000 }),
    LOG_LEVEL: z
      .enum(
        ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'],
        'must be one of trace, debug, info, warn, error, fatal, silent',
      )
      .default('info'),
    CONTROL_CONNECTIONS: count.default(8),
    CONNECTION_BUDGET: count.default(80),
    TENANT_CONNECTIONS: count.default(8),
    RESPONSE_CACHE_MB: count.default(64),
    ACQUIRE_TIMEOUT_MS: count.default(3_000),
    KEEP_ALIVE_TIMEOUT: duration.default(75_000),
    SHUTDOWN_DELAY: duration
      .refine(ms => ms <= 20_000, 'must be 20s at most: the whole stop takes at most 25 s')
      .default(5_000),
  })
  .refine(env => env.CONNECTION_BUDGET > env.CONTROL_CONNECTIONS + 1, {
    path: ['CONNECTION_BUDGET'],
    message: 'must be more than CONTROL_CONNECTIONS and 1, so that tenants have some',
  })
  .refine(env => !env.DATABASE_URL || env.MASTER_KEY, {
    path: ['MASTER_KEY'],
    message: 'is required when DATABASE_URL is set',
  });

function toConfig(env: z.output<typeof variables>) {
  return {
    /** Where the API listens. */
    host: env.HOST,
    port: env.PORT,
    /** Where health is told; loopback unless set, never the public port. */
    managementHost: env.MANAGEMENT_HOST,
    managementPort: env.MANAGEMENT_PORT,
    /** The control database; undefined = an embedded PostgreSQL under `dataDir`. */
    databaseUrl: env.DATABASE_URL,
    /** Seals signing keys and database passwords; undefined = made once and kept under `dataDir`. */
    masterKey: env.MASTER_KEY,
    /** The master key before it, while what it sealed is still about. */
    previousMasterKey: env.MASTER_KEY_PREVIOUS,
    dataDir: resolve(env.DATA_DIR),
    /** Issuer of the access tokens, base of links in mails. */
    publicUrl: (env.PUBLIC_URL ?? `http://localhost:${env.PORT}`).replace(/\/+$/, ''),
    /** Where mail is handed in; undefined = messages are written to files under `dataDir`. */
    smtpUrl: env.SMTP_URL,
    mailFrom: env.MAIL_FROM,
    /** Peers whose X-Forwarded-For is believed. */
    trustedProxies: env.TRUSTED_PROXIES,
    /** Where all processes count requests together; undefined = each counts its own. */
    redisUrl: env.REDIS_URL,
    /** Most requests of a client in a stretch of time: of all kinds, logins to one account, account changes, tokens. */
    rateLimits: {
      global: env.RATE_LIMIT_GLOBAL,
      login: env.RATE_LIMIT_LOGIN,
      account: env.RATE_LIMIT_ACCOUNT,
      token: env.RATE_LIMIT_TOKEN,
    },
    logLevel: env.LOG_LEVEL,
    /** Most connections of this process to one PostgreSQL server, over all tenants and the control database. */
    connectionBudget: env.CONNECTION_BUDGET,
    /** Of them, the most to the control database (one more carries the change feed). */
    controlConnections: env.CONTROL_CONNECTIONS,
    /** Of them, the most of one tenant. */
    tenantConnections: env.TENANT_CONNECTIONS,
    /** Most memory for answers that are served without asking a database. */
    responseCacheBytes: env.RESPONSE_CACHE_MB * 1024 * 1024,
    /** Longest wait for a connection; then 503 `overloaded`. */
    acquireTimeoutMs: env.ACQUIRE_TIMEOUT_MS,
    /** How long an idle client connection stays open: longer than load balancers keep theirs (60 s is common). */
    keepAliveMs: env.KEEP_ALIVE_TIMEOUT,
    /** How long SIGTERM lets the service go on serving, not ready any more, until it refuses connections. */
    shutdownDelayMs: env.SHUTDOWN_DELAY,
  };
}
