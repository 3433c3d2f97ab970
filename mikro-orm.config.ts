import { Migrator } from '@mikro-orm/migrations';
import { defineConfig, MikroORM, type Options } from '@mikro-orm/postgresql';
import { readConfig } from './src/config.ts';
import { controlEntities, Tenant } from './src/control/entities.ts';
import { databaseUrl } from './src/control/servers.ts';
import { runningEmbeddedUrl } from './src/embedded/postgres.ts';
import { tenantEntities } from './src/resources/index.ts';

const migrations = (folder: 'control' | 'tenant'): NonNullable<Options['migrations']> => ({
  path: new URL(`./migrations/${folder}`, import.meta.url).pathname,
  tableName: 'migrations',
  glob: '[0-9]*.ts',
  // Hand-written SQL with triggers and grants is the truth; a snapshot of the entities would only repeat a part of it.
  snapshot: false,
});

/** MikroORM's options for the control database. */
export function controlOptions(url: string): Options {
  return defineConfig({
    contextName: 'default',
    clientUrl: url,
    ensureDatabase: false,
    entities: controlEntities,
    extensions: [Migrator],
    migrations: migrations('control'),
  });
}

/** MikroORM's options for a tenant database. */
export function tenantOptions(url: string, contextName = 'tenant'): Options {
  return defineConfig({
    contextName,
    clientUrl: url,
    ensureDatabase: false,
    entities: tenantEntities,
    extensions: [Migrator],
    migrations: migrations('tenant'),
  });
}

/**
 * For MikroORM's own command line: `default` is the control database, `tenant:<slug>` the database of that tenant.
 * To migrate, use `npm run tenant -- migrate`, which locks and keeps the books.
 */
export default async function options(contextName = 'default'): Promise<Options> {
  const config = readConfig();
  const url = config.databaseUrl ?? (await runningEmbeddedUrl(config.dataDir));
  const control = controlOptions(url);
  if (contextName === 'default') return control;
  const slug = contextName.replace(/^tenant:/, '');
  const orm = new MikroORM(control);
  try {
    const { databaseName } = await orm.em.fork().findOneOrFail(Tenant, { slug });
    return tenantOptions(databaseUrl(url, databaseName), contextName);
  } finally {
    await orm.close();
  }
}
