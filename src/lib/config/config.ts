import type { z } from 'zod';
import { cleanText } from './clean-text.ts';
import { ConfigError } from './config-error.ts';
import { variables } from './config-variables.ts';
import { processCount } from './process-count.ts';
import { environment } from './process-environment.ts';
import { projectPath } from './project-path.ts';
import { retiredSettingWarnings } from './retired-settings.ts';
import { readSecretFiles, secretFileWarnings, secretVariables } from './secret-files.ts';
import { similarSettingWarnings } from './similar-settings.ts';
import { tracingSettings } from './tracing-settings.ts';

/** The validated, frozen settings of one process. `.env.example` explains each variable. */
export type Config = Readonly<ReturnType<typeof toConfig>>;

/**
 * Reads all settings from the environment, and secrets from the files that `…_FILE` variables
 * name. An empty variable counts as not set.
 * @throws {ConfigError} which names every invalid variable
 */
export function readConfig(values: NodeJS.ProcessEnv = environment()): Config {
  const set = setVariables(values);
  // An ignored setting would mislead operators.
  const { values: secrets, errors } = readSecretFiles(set);
  if (errors.length > 0) throw new ConfigError(errors.join('; '));

  const parsed = variables.safeParse({ ...set, ...secrets });
  if (!parsed.success) {
    const nameOf = (variable: string): string =>
      secrets[variable] === undefined ? variable : `${variable} (from ${variable}_FILE)`;
    const texts = parsed.error.issues.map(
      ({ path, message }) => `${nameOf(path.join('.'))} ${message}`,
    );
    throw new ConfigError(texts.join('; '));
  }

  return Object.freeze(toConfig(parsed.data));
}

/** Returns a sentence for each variable that is accepted and yet probably wrong. */
export function settingWarnings(values: NodeJS.ProcessEnv = environment()): string[] {
  const set = setVariables(values);
  const settings = [...settingNames, ...secretVariables.map(name => `${name}_FILE`)];
  const names = Object.keys(set);
  return [
    ...secretFileWarnings(set),
    ...retiredSettingWarnings(names),
    ...similarSettingWarnings(names, settings),
  ];
}

/**
 * Returns the variables that are set, cleaned by `cleanText`. The first name in a file may
 * follow a byte order mark.
 */
function setVariables(values: NodeJS.ProcessEnv): Record<string, string> {
  const cleaned = Object.entries(values).map(
    ([name, value = '']) => [cleanText(name), cleanText(value)] as const,
  );
  return Object.fromEntries(cleaned.filter(([, value]) => value));
}

/**
 * The maximum logins per window, where no setting names another. On the embedded PostgreSQL it
 * is higher: a person who tries the service may log in often.
 */
const loginRate = { max: 5, windowMs: 900_000 };
const demoLoginRate = { max: 1_000, windowMs: 900_000 };

/** The names of all settings. A secret can be in a file instead (`secretVariables`). */
export const settingNames = Object.keys(variables.shape);

function toConfig(env: z.output<typeof variables>) {
  const { count, note } = processCount(env);

  return {
    /**
     * Worker processes that serve requests; 1 = the process that was started serves them
     * itself.
     */
    processes: count,
    /**
     * The reason why `PROCESSES=auto` is fewer than one process per core; undefined if it is
     * not.
     */
    processesNote: note,
    /** The address on which the API listens. */
    host: env.HOST,
    port: env.PORT,
    /**
     * The address on which health checks and metrics listen: by default the loopback interface.
     * They are not on the public port.
     */
    managementHost: env.MANAGEMENT_HOST,
    managementPort: env.MANAGEMENT_PORT,
    /** The control database; undefined = an embedded PostgreSQL under `dataDir`. */
    databaseUrl: env.DATABASE_URL,
    /**
     * Encrypts signing keys and database passwords; undefined = generated once and stored under
     * `dataDir`.
     */
    masterKey: env.MASTER_KEY,
    /** The second of the two master keys, while the key is being changed. */
    previousMasterKey: env.MASTER_KEY_PREVIOUS,
    /**
     * Absolute path of the folder for the embedded PostgreSQL, its master key and mails without
     * a mail server.
     */
    dataDir: projectPath(env.DATA_DIR),
    /**
     * The address under which clients reach the service, for links in mails and examples,
     * without a slash at the end.
     */
    publicUrl: env.PUBLIC_URL ?? `http://localhost:${env.PORT}`,
    /**
     * The address of the pages that links in mails lead to; undefined = those of the service.
     */
    appUrl: env.APP_URL,
    /**
     * The part of the documentation that the public port shows: all, all but the operators'
     * handbook, or nothing.
     */
    docs: env.DOCS,
    /** The mail server; undefined = mails are written to files under `dataDir`. */
    smtpUrl: env.SMTP_URL,
    mailFrom: env.MAIL_FROM,
    /** Minimum length of a new password without a second factor, in code points. */
    passwordMinLength: env.PASSWORD_MIN_LENGTH,
    /** Peers that name the address of their client, and where they do. */
    trustedProxies: {
      ...env.TRUSTED_PROXIES,
      hops: env.TRUSTED_HOPS,
      header: env.TRUSTED_HEADER,
    },
    /** Origins whose scripts may read responses. */
    corsOrigins: env.CORS_ORIGINS,
    /**
     * The Redis in which all processes count requests together; undefined = each process counts
     * by itself.
     */
    redisUrl: env.REDIS_URL,
    /**
     * Maximum requests of a client per window: all requests, logins to one account, account
     * changes, legacy tokens. `failures`: maximum failed logins to one account, of all clients
     * together. `mails`: maximum mails to one account, as `findRecipient` and
     * `addInvitationMail` count them. `people`: maximum changes of users and roles by one
     * administrator.
     */
    rateLimits: {
      global: env.RATE_LIMIT_GLOBAL,
      login: env.RATE_LIMIT_LOGIN ?? (env.DATABASE_URL ? loginRate : demoLoginRate),
      failures: env.RATE_LIMIT_FAILURES,
      mails: env.RATE_LIMIT_MAILS,
      people: env.RATE_LIMIT_PEOPLE,
      account: env.RATE_LIMIT_ACCOUNT,
      token: env.RATE_LIMIT_TOKEN,
    },
    logLevel: env.LOG_LEVEL,
    /**
     * Maximum connections of all processes to one PostgreSQL server: all tenants and the
     * control database.
     */
    connectionBudget: env.CONNECTION_BUDGET,
    /**
     * Maximum connections of each process to the control database, which its share of
     * `connectionBudget` includes; one more for the change feed.
     */
    controlConnections: env.CONTROL_CONNECTIONS,
    /** Maximum connections to one tenant database, which `connectionBudget` includes. */
    tenantConnections: env.TENANT_CONNECTIONS,
    /** Maximum memory of the response cache. */
    responseCacheBytes: env.RESPONSE_CACHE_MB * 1024 * 1024,
    /** Maximum wait for a connection, after which the response is 503 `overloaded`. */
    acquireTimeoutMs: env.ACQUIRE_TIMEOUT_MS,
    /**
     * The time for which an idle client connection stays open: longer than at a load balancer
     * (60 s is common).
     */
    keepAliveMs: env.KEEP_ALIVE_TIMEOUT,
    /**
     * The time after SIGTERM for which the service serves requests, and reports that it is not
     * ready.
     */
    shutdownDelayMs: env.SHUTDOWN_DELAY,
    /**
     * Receivers of webhooks, each of one tenant, for which the rules for addresses, ports and
     * https do not hold.
     */
    trustedReceivers: env.WEBHOOK_TRUSTED_RECEIVERS,
    /**
     * Providers of sign-in, each of one tenant, for which the rules for addresses and ports do
     * not hold.
     */
    trustedProviders: env.TRUSTED_PROVIDERS,
    /**
     * The collector to which spans are sent, and the choice of spans; undefined = requests are
     * not traced.
     */
    tracing: tracingSettings(env),
    /** True if a request continues the trace that its client names. */
    continuesTraces: env.OTEL_PROPAGATORS === 'tracecontext',
    /** The settings of the commands of backups; the service does not use them. */
    backup: {
      /** The backup target; undefined = there is none. */
      target: env.BACKUP_TARGET,
      /** The recipients of age for whom archives are sealed. */
      recipients: env.BACKUP_RECIPIENTS,
      /**
       * The file with the identities of age that open archives; undefined = this host opens
       * none.
       */
      identityFile: env.BACKUP_IDENTITY_FILE && projectPath(env.BACKUP_IDENTITY_FILE),
      /** The archives of a database that are kept. */
      keep: env.BACKUP_KEEP,
      /**
       * The login to the object store of a bucket, and its address. Defaults: the login and the
       * region of the machine, and the endpoint of Amazon.
       */
      s3: {
        accessKeyId: env.AWS_ACCESS_KEY_ID,
        secretAccessKey: env.AWS_SECRET_ACCESS_KEY,
        sessionToken: env.AWS_SESSION_TOKEN,
        region: env.AWS_REGION,
        endpoint: env.AWS_ENDPOINT_URL,
      },
    },
  };
}
