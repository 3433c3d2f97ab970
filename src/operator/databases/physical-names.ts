import type { Server } from '../../control/control-entities.ts';

type Prefixed = Pick<Server, 'prefix'>;

/**
 * Returns the name of a tenant's database and login role. It contains a number that is never used twice. It does not
 * contain the slug, because every login of the server can read the names of all databases and roles.
 */
export function physicalName({ prefix }: Prefixed, id: number): string {
  return `${prefix}_tenant_${id}`;
}

/**
 * True for a name that this installation gives to databases and roles of tenants, not to templates and other things.
 * Names of earlier builds contain the slug.
 */
export function isPhysicalName({ prefix }: Prefixed, name: string): boolean {
  return new RegExp(`^${prefix}_[a-z][a-z0-9-]{0,30}[a-z0-9]_\\d+$`).test(name);
}
