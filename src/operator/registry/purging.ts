import type { Tenant } from '../../control/control-entities.ts';
import type { ControlStatements } from '../../control/installation.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';

/** @throws {OperatorError} when the tenant must be deleted before it can be purged */
export function requirePurgeable({ slug, status }: Pick<Tenant, 'slug' | 'status'>): void {
  if (status !== 'deleted' && status !== 'provisioning') {
    throw new OperatorError(`${slug} is ${status}. Delete it first: bin/backoffice delete ${slug}`);
  }
}

/**
 * @throws {OperatorError} when a purge of the tenant has begun: its database may be dropped
 *   already
 */
export async function requireNotPurging(
  { statements }: ControlStatements,
  slug: string,
): Promise<void> {
  const { rows: found } = await statements.query<object>(
    'select from tenants where slug = $1 and purging_at is not null limit 1',
    [slug],
  );
  if (found.length > 0) {
    throw new OperatorError(
      `A purge of ${slug} has begun, and can only be ended: bin/backoffice purge ${slug}`,
    );
  }
}

/**
 * Runs work that makes a tenant with the data of another one.
 * @param newSlug of the tenant that it makes
 * @throws {OperatorError} when it fails because the other one is purged meanwhile
 */
export async function copyFrom<T>(
  control: ControlStatements,
  source: Pick<Tenant, 'id' | 'slug'>,
  newSlug: string,
  work: () => Promise<T>,
): Promise<T> {
  try {
    return await work();
  } catch (cause) {
    if (!(await isPurged(control, source.id))) throw cause;
    const { rows } = await control.statements.query<object>(
      `select from tenants where slug = $1 and status = 'provisioning' limit 1`,
      [newSlug],
    );
    const [begun] = rows;
    throw new OperatorError(
      `${source.slug} was purged meanwhile: nothing is left of it to copy` +
        (begun ? `. Remove what was begun: bin/backoffice purge ${newSlug}` : ''),
      { cause },
    );
  }
}

/** True also while the purge has not ended. */
async function isPurged({ statements }: ControlStatements, id: number): Promise<boolean> {
  const { rows } = await statements.query<object>(
    'select from tenants where id = $1 and purging_at is null',
    [id],
  );
  return rows.length === 0;
}
