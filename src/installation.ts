import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Config } from './config.ts';
import { type ControlDatabase, openControlDatabase } from './control/database.ts';
import { createSecretBox, type SecretBox } from './control/secret-box.ts';
import { createServerUrls, type ServerUrls } from './control/server-urls.ts';
import { embeddedMasterKey } from './embedded/master-key.ts';
import { embeddedControlUrl, startEmbeddedPostgres } from './embedded/postgres.ts';
import { OperatorError } from './operator-error.ts';

/** The parts that service and command line both use: the control database, the keys, the servers of the tenants. */
export interface Installation {
  /** The URL of the control database. */
  readonly controlUrl: string;
  /** True if this process uses the embedded PostgreSQL and the master key under the data folder. */
  readonly embedded: boolean;
  readonly control: ControlDatabase;
  readonly secrets: SecretBox;
  readonly servers: ServerUrls;
  /** Closes the control database, and leaves the embedded PostgreSQL. */
  close(): Promise<void>;
}

/** Opens the configured control database. If none is configured, starts or joins the embedded PostgreSQL. */
export async function openInstallation(config: Config): Promise<Installation> {
  if (config.databaseUrl && config.masterKey) return assemble(config, config.databaseUrl, config.masterKey);
  await requireWritableFolder(config.dataDir);
  const masterKey = config.masterKey ?? (await embeddedMasterKey(config.dataDir));
  const postgres = await startEmbeddedPostgres(config.dataDir);
  return assemble(config, embeddedControlUrl(postgres.url), masterKey, postgres.leave);
}

/** @throws {OperatorError} when the folder does not exist and cannot be created, or files in it cannot be created */
async function requireWritableFolder(folder: string): Promise<void> {
  const probe = join(folder, `.write-test-${process.pid}`);
  try {
    await mkdir(folder, { recursive: true });
    await writeFile(probe, 'x');
    await rm(probe);
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    throw new OperatorError(
      `DATA_DIR cannot be written (${code}): set it to a folder that this login may write, or set DATABASE_URL`,
      { cause },
    );
  }
}

function assemble(config: Config, controlUrl: string, masterKey: Buffer, leave?: () => Promise<void>): Installation {
  const secrets = createSecretBox(masterKey, config.previousMasterKey);
  const control = openControlDatabase(controlUrl, config.controlConnections);
  return {
    controlUrl,
    embedded: leave !== undefined,
    control,
    secrets,
    servers: createServerUrls(controlUrl, secrets),
    close: async () => {
      await control.close(true);
      await leave?.();
    },
  };
}
