import type { Server } from '../../control/fleet-entities.ts';

type Prefixed = Pick<Server, 'prefix'>;

/**
 * Names of databases and login roles on a server. The number is that of the tenant, out of a sequence, and never comes
 * again, so neither does the name, though a slug may.
 */
export function physicalName({ prefix }: Prefixed, slug: string, id: number): string {
  return `${prefix}_${slug}_${id}`;
}

/** Of a database that no tenant has claimed yet. The one that does will have its number. */
export function warmName({ prefix }: Prefixed, id: number): string {
  return `${prefix}_warm_${id}`;
}

/** The number in the name of a warm database or role; undefined for any other name. */
export function warmNumber({ prefix }: Prefixed, name: string): number | undefined {
  const match = new RegExp(`^${prefix}_warm_(\\d{1,15})$`).exec(name);
  return match ? Number(match[1]) : undefined;
}

/** Whether a name is one that this installation gives to tenants. Templates and control databases have others. */
export function isPhysicalName({ prefix }: Prefixed, name: string): boolean {
  return new RegExp(`^${prefix}_[a-z][a-z0-9-]{0,30}[a-z0-9]_\\d+$`).test(name);
}
