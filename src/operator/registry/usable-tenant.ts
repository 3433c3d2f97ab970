import type { Tenant } from '../../control/control-entities.ts';
import type { ControlStatements } from '../../control/installation.ts';
import { requireNoLaterBuild } from '../../control/tenant-head.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { requireNotPurging } from './purging.ts';

/**
 * Requires what each verb needs that works with the data of a tenant, in this order: no purge of
 * it has begun, it is provisioned, and no later build has migrated it.
 * @throws {LaterBuildError} when a later build has migrated it
 * @throws {OperatorError} when a purge has begun, or it is not completely provisioned
 */
export async function requireUsableTenant(
  control: ControlStatements,
  { slug, status, schemaVersion }: Pick<Tenant, 'slug' | 'status' | 'schemaVersion'>,
): Promise<void> {
  await requireNotPurging(control, slug);
  if (status === 'provisioning') {
    throw new OperatorError(`${slug} is not completely provisioned: provision it again`);
  }
  await requireNoLaterBuild({ slug, schemaVersion });
}
