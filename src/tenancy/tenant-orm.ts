import { Migrator } from '@mikro-orm/migrations';
import { defineConfig, MikroORM, type Options } from '@mikro-orm/postgresql';
import { migrationOptions } from '../postgres/migration-steps.ts';

/** What is stored in a tenant database. */
export type TenantEntities = NonNullable<Options['entities']>;

/** MikroORM's options for a tenant database. */
export function tenantOptions(url: string, entities: TenantEntities, contextName = 'tenant'): Options {
  return defineConfig({
    contextName,
    clientUrl: url,
    ensureDatabase: false,
    entities,
    extensions: [Migrator],
    migrations: migrationOptions('tenant'),
  });
}

/** A result cache of one MikroORM is shared by all tenants, so there is none: using it fails. */
class NoResultCache {
  get(): never {
    throw new Error('the result cache would be shared between tenants');
  }
  set = this.get;
  remove = this.get;
  clear = this.get;
}

/**
 * The one MikroORM whose metadata all tenant databases share. It is never connected: its own database does not exist,
 * on a host that does not exist, so an entity manager taken from it by mistake reaches nothing.
 */
export function createTenantOrm(entities: TenantEntities): MikroORM {
  return new MikroORM({
    ...tenantOptions('postgresql://nobody@no-tenant.invalid:1/no_tenant', entities),
    resultCache: { adapter: NoResultCache as never },
  });
}
