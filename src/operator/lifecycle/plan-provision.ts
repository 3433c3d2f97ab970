import { join } from 'node:path';
import type { Installation } from '../../control/installation.ts';
import { errorText } from '../command/texts.ts';
import { requireNotPurging } from '../registry/purging.ts';
import { placeTenant } from '../registry/servers.ts';
import { requireFreeSlug } from '../registry/tenant-slugs.ts';
import { findNamedTenant } from '../registry/tenants.ts';
import { listManifests, type Manifest, readManifest } from './manifest.ts';

/** The plan of `provision` for a manifest. */
interface PlannedTenant {
  /** The slug; the name of the file when it is no manifest. */
  slug: string;
  server: string | null;
  /** `exists`: the tenant is there, and would not be changed. */
  state: 'planned' | 'exists' | 'failed';
  error: string | null;
}

/**
 * Returns the plan of `provision` for a manifest, and changes nothing.
 * @throws {OperatorError} when it would fail
 */
export async function planProvision(
  installation: Installation,
  manifest: Manifest,
  { reusesSlug }: { reusesSlug: boolean },
): Promise<PlannedTenant> {
  const { slug } = manifest;
  await requireNotPurging(installation, slug);
  const found = await findNamedTenant(installation, slug);
  if (!found && !reusesSlug) await requireFreeSlug(installation, slug);
  const server = found?.server ?? (await placeTenant(installation, manifest.server));
  const exists = found !== null && found.status !== 'provisioning';
  return { slug, server: server.name, state: exists ? 'exists' : 'planned', error: null };
}

/**
 * Returns the plan of `provision` for each manifest of a folder, those that would fail last;
 * changes nothing.
 */
export async function planFolder(
  installation: Installation,
  folder: string,
): Promise<PlannedTenant[]> {
  const planned: PlannedTenant[] = [];
  const failed: PlannedTenant[] = [];
  for (const file of await listManifests(folder)) {
    await readManifest(join(folder, file))
      .then(manifest => planProvision(installation, manifest, { reusesSlug: false }))
      .then(
        plan => planned.push(plan),
        error =>
          failed.push({ slug: file, server: null, state: 'failed', error: errorText(error) }),
      );
  }

  return [...planned, ...failed];
}
