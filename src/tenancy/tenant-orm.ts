import { Migrator } from '@mikro-orm/migrations';
import { defineConfig, MikroORM, type Options } from '@mikro-orm/postgresql';
import { migrationOptions } from '../lib/postgres/migration-steps.ts';

/** The entities of a tenant database. */
export type TenantEntities = NonNullable<Options['entities']>;

/** Returns MikroORM's options for a tenant database. */
export function tenantOptions(
  url: string,
  entities: TenantEntities,
  contextName = 'tenant',
): Options {
  return defineConfig({
    contextName,
    clientUrl: url,
    ensureDatabase: false,
    entities,
    extensions: [Migrator],
    migrations: migrationOptions('tenant'),
  });
}

/** All tenants would share the result cache of the one MikroORM, so every use of it throws. */
class NoResultCache {
  get(): never {
    throw new Error('the result cache would be shared between tenants');
  }
  set = this.get;
  remove = this.get;
  clear = this.get;
}

/**
 * Creates the one MikroORM whose metadata all tenant databases share. It never connects: its
 * own database and host do not exist, so an entity manager that is taken from it by mistake
 * reaches no database.
 */
export function createTenantOrm(entities: TenantEntities): MikroORM {
  return new MikroORM({
    ...tenantOptions('postgresql://nobody@no-tenant.invalid:1/no_tenant', entities),
    resultCache: { adapter: NoResultCache },
  });
}
