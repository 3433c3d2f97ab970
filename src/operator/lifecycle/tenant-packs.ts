import { changeChannel, changeTopics } from '../../control/change-topics.ts';
import type { Tenant } from '../../control/control-entities.ts';
import type { Installation } from '../../control/installation.ts';
import { requireTenantHead } from '../../control/tenant-head.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { lockSpaces, withLock } from '../../lib/postgres/advisory-locks.ts';
import { connectTenant, findTenant, holdOpen, requireNamed } from '../registry/tenants.ts';
import { type AppliedPack, applyPacks } from './apply-packs.ts';
import { type ComparedRow, comparePack } from './compare-pack.ts';
import type { PackName } from './pack-names.ts';
import { type Pack, readPack } from './read-pack.ts';

/**
 * Compares packs with the data of a tenant.
 * @throws {OperatorError} when the tenant has no data to compare
 */
export async function compareTenantPacks(
  installation: Installation,
  slug: string,
  names: readonly PackName[],
): Promise<{ pack: Pack; compared: ComparedRow[] }[]> {
  const packs = await Promise.all(names.map(readPack));
  const tenant = await findTenant(installation, slug);
  await requireComparable(tenant);
  return connectTenant(installation, tenant, async client => {
    const result: { pack: Pack; compared: ComparedRow[] }[] = [];
    for (const pack of packs) result.push({ pack, compared: await comparePack(client, pack) });
    return result;
  });
}

/**
 * Adds the rows of packs that a tenant lacks, and makes every process read the tenant's data
 * again.
 * @throws {OperatorError} when the tenant is deleted or not at the version of this build, or a
 *   table is full
 */
export async function applyTenantPacks(
  installation: Installation,
  slug: string,
  names: readonly PackName[],
): Promise<AppliedPack[]> {
  const packs = await Promise.all(names.map(readPack));
  const { id } = await findTenant(installation, slug);

  return withLock(installation.controlUrl, lockSpaces.tenant, id, async control => {
    await requireNamed(control, id, slug);
    const tenant = await findTenant(installation, slug);
    await requireComparable(tenant);
    if (tenant.status === 'deleted') {
      throw new OperatorError(
        `${slug} is deleted. Undelete it first: bin/backoffice undelete ${slug}`,
      );
    }

    const applied = await connectTenant(installation, tenant, async client => {
      await holdOpen(client, tenant);
      return applyPacks(client, packs);
    });
    await control.query('select pg_notify($1, $2)', [
      changeChannel,
      `${changeTopics.responses}:${tenant.guid}`,
    ]);

    return applied;
  });
}

async function requireComparable(tenant: Tenant): Promise<void> {
  if (tenant.status === 'provisioning') {
    throw new OperatorError(
      `${tenant.slug} is not ready yet. Run its tenant provision command again`,
    );
  }
  await requireTenantHead(tenant);
}
