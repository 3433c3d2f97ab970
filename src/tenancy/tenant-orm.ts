import { MikroORM } from '@mikro-orm/postgresql';
import { tenantOptions } from '../../mikro-orm.config.ts';

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
export function createTenantOrm(): MikroORM {
  return new MikroORM({
    ...tenantOptions('postgresql://nobody@no-tenant.invalid:1/no_tenant'),
    resultCache: { adapter: NoResultCache as never },
  });
}
