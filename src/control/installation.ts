import { randomUUID } from 'node:crypto';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type pg from 'pg';
import type { Logger } from 'pino';
import type { Config } from '../lib/config/config.ts';
import { embeddedControlUrl, pathExists } from '../lib/embedded/cluster.ts';
import { embeddedMasterKey } from '../lib/embedded/master-key.ts';
import { startEmbeddedPostgres } from '../lib/embedded/postgres.ts';
import { OperatorError } from '../lib/log/operator-error.ts';
import { codeOf } from '../lib/narrow.ts';
import { type Queryable, shareConnection } from '../lib/postgres/shared-connection.ts';
import { createControlPool } from './control-pool.ts';
import type { ControlDatabase } from './database.ts';
import { type BudgetMember, newProcess, type ProcessIdentity } from './process-identity.ts';
import { SecretBox } from './secret-box.ts';
import { createServerUrls, type ServerUrls } from './server-urls.ts';

/** The address of the control database, for connections beside those of the pool. */
export interface ControlAddress {
  /** The URL of the control database. */
  readonly controlUrl: string;
}

/** Opens connections to the servers of the tenants. */
export interface ServerAccess {
  readonly servers: ServerUrls;
}

/** Seals and opens secrets. */
export interface KeyAccess {
  readonly secrets: SecretBox;
}

/** The settings of the process, which it has read once. */
export interface ConfigAccess {
  readonly config: Config;
}

/** The means to open the databases of an installation, its secrets, and the settings. */
export interface InstallationAccess extends ControlAddress, ServerAccess, KeyAccess, ConfigAccess {
  /**
   * True if this process uses the embedded PostgreSQL and the master key under the data folder.
   */
  readonly embedded: boolean;
  /** The data folder of the embedded PostgreSQL; undefined if the databases are configured. */
  readonly dataFolder: string | undefined;
  /** Leaves the embedded PostgreSQL. */
  close(): Promise<void>;
}

/** Runs statements on the control database. */
export interface ControlStatements {
  readonly statements: Queryable;
}

/**
 * The parts that service and command line both use: the control database, the keys, the servers
 * of the tenants.
 */
export interface Installation extends InstallationAccess, ControlStatements {
  /** The connections to the control database, which statements and entity managers share. */
  readonly pool: pg.Pool;
  /**
   * Returns the control database for entity managers. The first call loads MikroORM, which
   * takes 0.3 s of CPU time: a command that does without it starts sooner.
   */
  readonly control: () => Promise<ControlDatabase>;
  /** This process in the connection budget; undefined if it takes no part. */
  readonly member?: BudgetMember | undefined;
  /** Closes the control database, and leaves the embedded PostgreSQL. */
  close(): Promise<void>;
}

/**
 * Connections of the pool of the control database: of a command, which in an emergency may find
 * only one free, and of a service that has no share yet.
 */
const firstConnections = { command: 1, service: 2 };

/** The use of an embedded PostgreSQL by a process. */
export interface EmbeddedUse {
  /** The log. With a log, this process starts a killed server again, and logs that. */
  readonly log?: Logger;
  /** True for work on data that exist: a folder without data is refused, and stays empty. */
  readonly needsData?: boolean;
}

/**
 * Opens the configured control database, which connects on first use. If none is configured,
 * starts or joins the embedded PostgreSQL.
 * @param kind of the process; without it, the process takes no part in the connection budget
 */
export async function openInstallation(
  config: Config,
  kind?: ProcessIdentity['kind'],
  use: EmbeddedUse = {},
): Promise<Installation> {
  const access = await openAccess(config, use);
  const member = kind && {
    process: newProcess(kind),
    maxControl: () => firstConnections[kind],
    onControlRefused: () => {},
  };

  return openControl(access, member);
}

/** Opens the control database with the login of `access.controlUrl`. */
export function openControl(
  access: InstallationAccess,
  member: BudgetMember | undefined,
): Installation {
  const { controlUrl, config } = access;
  const pool = createControlPool(controlUrl, config.controlConnections, member);
  let opened: Promise<ControlDatabase> | undefined;

  async function open(): Promise<ControlDatabase> {
    const { openControlDatabase } = await import('./database.ts');
    return openControlDatabase(controlUrl, pool);
  }

  return {
    ...access,
    member,
    pool,
    statements: shareConnection(pool),
    control: () => (opened ??= open()),
    close: async () => {
      if (!pool.ending) await pool.end();
      await access.close();
    },
  };
}

/**
 * Returns a function that opens the configured databases. If none is configured, starts or
 * joins the embedded PostgreSQL.
 * @throws {OperatorError} when the folder of the embedded PostgreSQL cannot be used
 */
async function openAccess(
  config: Config,
  { log, needsData }: EmbeddedUse = {},
): Promise<InstallationAccess> {
  if (config.databaseUrl && config.masterKey) {
    return assemble(config, config.databaseUrl, config.masterKey);
  }
  if (needsData) await requireData(config.dataDir);
  await requireWritableFolder(config.dataDir);
  const masterKey = config.masterKey ?? (await embeddedMasterKey(config.dataDir));
  const postgres = await startEmbeddedPostgres(config.dataDir, { log });
  return assemble(config, embeddedControlUrl(postgres.url), masterKey, postgres.leave);
}

/** @throws {OperatorError} when the folder has no data of an embedded PostgreSQL */
async function requireData(folder: string): Promise<void> {
  if (await pathExists(join(folder, 'postgres'))) return;
  throw new OperatorError(
    `there are no data in ${folder}: set DATA_DIR or DATABASE_URL as for the service, or start the service first`,
  );
}

/**
 * @throws {OperatorError} when the folder does not exist and cannot be created, or files in it
 *   cannot be created
 */
async function requireWritableFolder(folder: string): Promise<void> {
  // Not the pid: in another container, another process has the same one.
  const probe = join(folder, `.write-test-${randomUUID()}`);
  try {
    await makeFolder(folder);
    await writeFile(probe, 'x');
    await rm(probe);
  } catch (cause) {
    const code = codeOf(cause);
    const remedy =
      code === 'ENOSPC' || code === 'EDQUOT'
        ? 'its disk is full: make room, or set DATA_DIR to a folder on another disk'
        : 'set it to a folder that this login may write, or set DATABASE_URL';
    throw new OperatorError(`DATA_DIR cannot be written (${code}): ${remedy}`, { cause });
  }
}

/**
 * Creates a folder with those above it, by steps: the recursive `mkdir` of Node never returns
 * within /proc.
 */
async function makeFolder(folder: string): Promise<void> {
  if (await pathExists(folder)) return;
  await makeFolder(dirname(folder));
  await mkdir(folder).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EEXIST') throw error; // another process was faster
  });
}

function assemble(
  config: Config,
  controlUrl: string,
  masterKey: Buffer,
  leave?: () => Promise<void>,
): InstallationAccess {
  const secrets = new SecretBox(masterKey, config.previousMasterKey);
  return {
    config,
    controlUrl,
    embedded: leave !== undefined,
    dataFolder: leave && config.dataDir,
    secrets,
    servers: createServerUrls(controlUrl, secrets),
    close: async () => leave?.(),
  };
}
