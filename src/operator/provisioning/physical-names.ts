import type { Server } from '../../control/fleet-entities.ts';

type Prefixed = Pick<Server, 'prefix'>;

/**
 * Returns the name of a tenant's database and login role. It contains a number that is never used twice. It does not
 * contain the slug, because every login of the server can read the names of all databases and roles.
 */
export function physicalName({ prefix }: Prefixed, id: number): string {
  return `${prefix}_tenant_${id}`;
}

/**
 * Returns the name of a database and role that no tenant has claimed yet. The tenant that claims it gets its number.
 */
export function warmName({ prefix }: Prefixed, id: number): string {
  return `${prefix}_warm_${id}`;
}

/** Returns the number in the name of a warm database or role; undefined for any other name. */
export function warmNumber({ prefix }: Prefixed, name: string): number | undefined {
  const match = new RegExp(`^${prefix}_warm_(\\d{1,15})$`).exec(name);
  return match ? Number(match[1]) : undefined;
}

/**
 * True for a name that this installation gives to databases and roles of tenants, not to templates and other things.
 * Names of earlier builds contain the slug.
 */
export function isPhysicalName({ prefix }: Prefixed, name: string): boolean {
  return new RegExp(`^${prefix}_[a-z][a-z0-9-]{0,30}[a-z0-9]_\\d+$`).test(name);
}
