import type { MikroORM as AnyMikroORM } from '@mikro-orm/core';
import { Migrator } from '@mikro-orm/migrations';
import { type EntityManager, MikroORM, type Options, SchemaGenerator } from '@mikro-orm/postgresql';
import { Tenant } from './src/control/control-entities.ts';
import { controlOptions } from './src/control/database.ts';
import { databaseUrl } from './src/control/server-urls.ts';
import { readConfig } from './src/lib/config/config.ts';
import { runningEmbeddedUrl } from './src/lib/embedded/cluster.ts';
import { connectionConfig } from './src/lib/postgres/connection.ts';
import { type MigrationFolder, migrationNames } from './src/lib/postgres/migration-names.ts';
import { tenantEntities } from './src/sales/tenant-entities.ts';
import { tenantOptions } from './src/tenancy/tenant-orm.ts';

/**
 * Configures the command line of MikroORM (`npx mikro-orm`): `default` is the control database,
 * `--contextName tenant:<slug>` a tenant database. `migration:create` begins a migration under
 * the next number. To migrate, use `bin/backoffice`: it takes the locks, grants the rights, and
 * records the run.
 */
export default async function options(contextName = 'default'): Promise<Options> {
  const config = readConfig();
  const url = config.databaseUrl ?? (await runningEmbeddedUrl(config.dataDir));
  const control = { ...controlOptions(url), driverOptions: connectionConfig(url, 'operator') };
  if (contextName === 'default') {
    return withWriter(control, 'control', 'bin/backoffice control migrate');
  }

  const slug = contextName.replace(/^tenant:/, '');
  const orm = new MikroORM(control);
  try {
    const { databaseName } = await orm.em.fork().findOneOrFail(Tenant, { slug });
    const tenantUrl = databaseUrl(url, databaseName);
    const tenant = {
      ...tenantOptions(tenantUrl, tenantEntities, contextName),
      driverOptions: connectionConfig(tenantUrl, 'operator'),
    };
    return await withWriter(tenant, 'tenant', `bin/backoffice migrate ${slug}`);
  } finally {
    await orm.close();
  }
}

/** Lets MikroORM write migrations, and refuses whatever would change the database. */
async function withWriter(
  options: Options,
  folder: MigrationFolder,
  command: string,
): Promise<Options> {
  const names = await migrationNames(folder);
  const next = String(Number(names.at(-1)?.slice(0, 4) ?? 0) + 1).padStart(4, '0');
  const fileName = (_: string, name = 'describe-me'): string =>
    `${next}-${name.trim().replace(/[\s_]+/g, '-')}`;

  const refuse = (): never => {
    throw new Error(
      `MikroORM would take no lock, grant no rights and record no run. Run: ${command}`,
    );
  };
  class MigrationWriter extends Migrator {
    override up = refuse;
    override down = refuse;
    override rollup = refuse;
    override logMigration = refuse;
    override unlogMigration = refuse;
  }
  class SchemaReader extends SchemaGenerator {
    override create = refuse;
    override update = refuse;
    override drop = refuse;
    override clear = refuse;
    override execute = refuse;
  }
  const register = (orm: AnyMikroORM): void => {
    const em = (): EntityManager => orm.em as EntityManager; // there only after this registration
    orm.config.registerExtension('@mikro-orm/schema-generator', () => new SchemaReader(em()));
    orm.config.registerExtension('@mikro-orm/migrator', () => new MigrationWriter(em()));
  };

  // Under this name, MikroORM takes it for its own extension, which it would add otherwise.
  const extensions = [{ name: 'Migrator', register }];
  return { ...options, extensions, migrations: { ...options.migrations, fileName } };
}
