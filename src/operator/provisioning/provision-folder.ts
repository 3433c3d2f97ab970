import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Passwords } from '../../auth/passwords.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../operator-error.ts';
import { type Manifest, readManifest } from './manifest.ts';
import { type Provisioned, provision } from './provision.ts';

/** What became of one manifest: a tenant, or why there is none. */
export interface ManifestOutcome {
  file: string;
  provisioned?: Provisioned;
  error?: unknown;
}

/** More copies of the template at the same time would take too much from the tenants of a server. */
const atOncePerServer = 2;

/**
 * Provisions every manifest (`*.json`) of a folder, two at the same time on each server. One that fails does not stop the
 * others, and tenants that are there already are left as they are.
 */
export async function provisionFolder(
  installation: Installation,
  passwords: Passwords,
  folder: string,
  onOutcome: (outcome: ManifestOutcome) => void,
): Promise<void> {
  const files = (await readdir(folder)).filter(file => file.endsWith('.json')).sort();
  if (files.length === 0) throw new OperatorError(`there is no manifest in ${folder}`, { usage: true });
  const manifests: { file: string; manifest: Manifest }[] = [];
  for (const file of files) {
    await readManifest(join(folder, file)).then(
      manifest => manifests.push({ file, manifest }),
      error => onOutcome({ file, error }),
    );
  }
  const work = async (line: typeof manifests): Promise<void> => {
    for (let next = line.shift(); next; next = line.shift()) {
      const { file, manifest } = next;
      await provision(installation, passwords, manifest).then(
        provisioned => onOutcome({ file, provisioned }),
        error => onOutcome({ file, error }),
      );
    }
  };
  // Those that leave the server to us may go to any: they come first, then each server has a line of its own.
  const lines = Map.groupBy(manifests, ({ manifest }) => manifest.server);
  const anywhere = lines.get(undefined) ?? [];
  lines.delete(undefined);
  for (const turn of [[anywhere], [...lines.values()]])
    await Promise.all(turn.flatMap(line => Array.from({ length: atOncePerServer }, () => work(line))));
}
