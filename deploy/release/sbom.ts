import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ReleaseError, run } from './run.ts';

interface LockedPackage {
  readonly name?: string;
  readonly version: string;
  readonly dev?: boolean;
  readonly devDependencies?: unknown;
}

interface Lock {
  readonly packages: Record<string, LockedPackage>;
}

interface Sbom {
  readonly metadata: { readonly component: { readonly name: string; readonly version: string } };
  readonly components: readonly {
    readonly name: string;
    readonly version: string;
    readonly group?: string;
  }[];
}

/**
 * Lists the packages of npm that the service needs, with versions, licences and digests, in the
 * format of CycloneDX.
 *
 * `npm sbom --omit=dev` would leave out each of them that a package of development needs, too,
 * such as zod. So npm gets a lock file in which there are no packages of development.
 * @param root folder with `package.json` and `package-lock.json`
 * @throws {ReleaseError} when the list is not that of the lock file
 */
export async function makeSbom(root: string): Promise<string> {
  const { devDependencies: _, ...manifest } = JSON.parse(
    await readFile(join(root, 'package.json'), 'utf8'),
  );
  const lock: Lock = JSON.parse(await readFile(join(root, 'package-lock.json'), 'utf8'));
  const packages = Object.fromEntries(Object.entries(lock.packages).filter(([, { dev }]) => !dev));
  const { devDependencies: __, ...own } = packages[''] as LockedPackage;

  const above = await mkdtemp(join(tmpdir(), 'backoffice-sbom-'));
  try {
    // npm takes the name of the folder for that of the project.
    const folder = join(above, manifest.name);
    await mkdir(folder);
    await writeFile(join(folder, 'package.json'), JSON.stringify(manifest));
    await writeFile(
      join(folder, 'package-lock.json'),
      JSON.stringify({ ...lock, packages: { ...packages, '': own } }),
    );
    const text = run(
      folder,
      'npm',
      'sbom',
      '--package-lock-only',
      '--sbom-format=cyclonedx',
      '--sbom-type=application',
    );

    const difference = await differenceOf(root, text);
    if (difference) throw new ReleaseError(difference);
    return text;
  } finally {
    await rm(above, { recursive: true });
  }
}

/**
 * Returns what a list has too much or too little, compared with the lock file; undefined if
 * they agree.
 */
async function differenceOf(root: string, text: string): Promise<string | undefined> {
  const { name, version } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'));
  const { metadata, components }: Sbom = JSON.parse(text);
  const lock: Lock = JSON.parse(await readFile(join(root, 'package-lock.json'), 'utf8'));
  const locked = new Set(
    Object.entries(lock.packages)
      .filter(([path, { dev }]) => path !== '' && !dev)
      .map(([path, each]) => `${each.name ?? path.split('node_modules/').pop()}@${each.version}`),
  );
  const listed = new Set(listedPackages(components));

  const own = metadata.component;
  if (own.name !== name || own.version !== version) {
    return `The SBOM is of ${own.name} ${own.version}, and package.json of ${name} ${version}.`;
  }
  const wrong = [...locked, ...listed].filter(each => locked.has(each) !== listed.has(each));
  return wrong.length > 0
    ? `The SBOM and package-lock.json differ in: ${wrong.join(', ')}.`
    : undefined;
}

/** Returns `name@version` of each package that a list has. */
export function listedPackages(components: Sbom['components']): string[] {
  return components.map(
    ({ group, name, version }) => `${group ? `${group}/` : ''}${name}@${version}`,
  );
}
