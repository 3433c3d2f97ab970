import { MikroORM, type Options } from '@mikro-orm/postgresql';
import { readConfig } from './src/config/config.ts';
import { Tenant } from './src/control/control-entities.ts';
import { controlOptions } from './src/control/database.ts';
import { databaseUrl } from './src/control/server-urls.ts';
import { runningEmbeddedUrl } from './src/embedded/cluster.ts';
import { connectionConfig } from './src/postgres/connection.ts';
import { tenantOptions } from './src/tenancy/tenant-orm.ts';
import { tenantEntities } from './src/tenant-entities.ts';

/**
 * Configures the command line of MikroORM: `default` is the control database, `tenant:<slug>` a tenant database. To
 * migrate, use `bin/backoffice migrate`: it takes the locks and records the run.
 */
export default async function options(contextName = 'default'): Promise<Options> {
  const config = readConfig();
  const url = config.databaseUrl ?? (await runningEmbeddedUrl(config.dataDir));
  const control = { ...controlOptions(url), driverOptions: connectionConfig(url, 'operator') };
  if (contextName === 'default') return control;
  const slug = contextName.replace(/^tenant:/, '');
  const orm = new MikroORM(control);
  try {
    const { databaseName } = await orm.em.fork().findOneOrFail(Tenant, { slug });
    const tenantUrl = databaseUrl(url, databaseName);
    return {
      ...tenantOptions(tenantUrl, tenantEntities, contextName),
      driverOptions: connectionConfig(tenantUrl, 'operator'),
    };
  } finally {
    await orm.close();
  }
}
