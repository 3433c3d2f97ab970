import { join } from 'node:path';
import type { Passwords } from '../../accounts/auth/passwords.ts';
import type { Installation } from '../../control/installation.ts';
import { fleetTasks } from '../command/fleet-tasks.ts';
import type { RecordBirth } from '../command/operation.ts';
import { runConcurrently } from '../command/run-fleet.ts';
import { readTenant, type TenantSummary } from '../registry/read-tenants.ts';
import { listManifests, type Manifest, readManifest } from './manifest.ts';
import { type Provisioned, provision } from './provision.ts';

/** The result of one manifest: the tenant, or the error. */
export interface ManifestOutcome {
  file: string;
  made?: { provisioned: Provisioned; summary: TenantSummary };
  error?: unknown;
}

/**
 * Two of them copy the template at the same time (`create-database.ts`); the others take the
 * short steps before and after the copy.
 */
const maxPerServer = 6;

/**
 * Provisions every manifest (`*.json`) of a folder, six at a time on each server. A manifest
 * that fails does not stop the others, and existing tenants are not changed.
 */
export async function provisionFolder(
  installation: Installation,
  passwords: Passwords,
  folder: string,
  recordBirth: RecordBirth,
  onOutcome: (outcome: ManifestOutcome) => void,
): Promise<void> {
  const manifests: { file: string; manifest: Manifest }[] = [];
  for (const file of await listManifests(folder)) {
    await readManifest(join(folder, file)).then(
      manifest => manifests.push({ file, manifest }),
      error => onOutcome({ file, error }),
    );
  }

  const make = async (manifest: Manifest) => {
    const provisioned = await provision(installation, passwords, manifest);
    if (provisioned.created) await recordBirth(manifest.slug);
    return { provisioned, summary: await readTenant(installation, manifest.slug) };
  };

  const provisionOne = ({ file, manifest }: (typeof manifests)[number]): Promise<void> =>
    make(manifest).then(
      made => onOutcome({ file, made }),
      error => onOutcome({ file, error }),
    );

  // A manifest without a server may be placed on any server. So these come first, within the
  // limit of a single server.
  const perServer = fleetTasks(installation, maxPerServer);
  const byServer = Map.groupBy(manifests, ({ manifest }) => manifest.server);
  await runConcurrently(byServer.get(undefined) ?? [], perServer, provisionOne);
  byServer.delete(undefined);
  await Promise.all(
    [...byServer.values()].map(group => runConcurrently(group, perServer, provisionOne)),
  );
}
