import { createHash } from 'node:crypto';
import { createReadStream, createWriteStream } from 'node:fs';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import type { Release } from './conditions.ts';
import { run } from './run.ts';
import { makeSbom } from './sbom.ts';

/** The folders of a release that is being made. */
export interface Workshop {
  /** The clone. */
  readonly root: string;
  /** What is handed out. */
  readonly made: string;
  /** Everything that goes when the release is made. */
  readonly work: string;
  /** The source, as it was unpacked from its archive: all others are made from it. */
  readonly source: string;
}

export const checksumFile = 'SHA256SUMS';

/**
 * Packs the files of the commit, and unpacks them into the folder of the source.
 * @returns the name of the archive
 */
export async function makeSource(
  { root, made, work }: Workshop,
  { version, commit }: Release,
): Promise<string> {
  const name = `sales-back-office-${version}.tar.gz`;
  const prefix = `sales-back-office-${version}/`;

  // Files that only their owner may change, as in a clone.
  run(
    root,
    'git',
    '-c',
    'tar.umask=0022',
    'archive',
    '--format=tar.gz',
    `--prefix=${prefix}`,
    '-o',
    join(made, name),
    commit,
  );
  run(work, 'tar', '-xzf', join(made, name));
  return name;
}

/**
 * Builds and packs the client. Its package has no scripts: npm names those of a package to
 * whoever installs it, and asks for an approval.
 * @returns the name of its package
 */
export async function makeClient({ made, source }: Workshop): Promise<string> {
  const folder = join(source, 'clients/typescript');

  // Without the script `prepare`, whose npm would print JSON of its own.
  run(folder, 'npm', 'ci', '--ignore-scripts');
  run(folder, 'npm', 'run', 'build');
  run(folder, 'npm', 'pkg', 'delete', 'scripts', 'devDependencies');

  const pack = ['pack', '--ignore-scripts', '--json', '--pack-destination', made];
  const packed = JSON.parse(run(folder, 'npm', ...pack));
  // npm 11 prints a list, and npm 12 an object with the names of packages.
  return (Object.values(packed)[0] as { filename: string }).filename;
}

/** @returns the name of the list of packages */
export async function writeSbom({ made, source }: Workshop, { version }: Release): Promise<string> {
  const name = `sales-back-office-${version}.cdx.json`;
  await writeFile(join(made, name), await makeSbom(source));
  return name;
}

/** The names of the files that a release hands out; without Docker, it has no image. */
export interface MadeFiles {
  readonly archive: string;
  readonly client: string;
  readonly sbom: string;
  readonly image: string | undefined;
}

/** Writes what the release has, and what each of its files is for. */
export async function writeNotes(
  { made, source }: Workshop,
  release: Release,
  { archive, client, sbom, image }: MadeFiles,
): Promise<void> {
  const platform = image && platformOf(source, imageName(release));
  const lines = [
    `- \`${archive}\`: the source, which runs without a build. In the unpacked folder, \`npm ci && npm start\` starts it; \`README.md\` says what else there is, and \`docs/operate.md\` is the handbook.`,
    ...(image
      ? [
          `- \`${image}\`: the image, for ${platform}. After \`docker load -i ${image}\`, \`docker compose up --wait\` in the unpacked source starts it with one PostgreSQL. \`docs/deploy.md\` has what production needs.`,
        ]
      : []),
    `- \`${client}\`: the client for TypeScript and JavaScript. In a project of yours: \`npm install ./${client}\`.`,
    `- \`${sbom}\`: the packages of npm that the service runs with, with versions, licences and digests (CycloneDX). What the base image has is in the list of its maker.`,
    `- \`${checksumFile}\`: \`sha256sum --check ${checksumFile}\` compares all of them.`,
  ];
  await writeFile(
    join(made, 'RELEASE-NOTES.md'),
    `${release.notes}\n### Files\n\n${lines.join('\n')}\n`,
  );
}

function platformOf(folder: string, image: string): string {
  const format = '{{.Os}}/{{.Architecture}}';
  return run(folder, 'docker', 'image', 'inspect', '--format', format, image).trim();
}

/** The name of the image in its archive. */
export const imageName = ({ version }: Pick<Release, 'version'>): string => `backoffice:${version}`;

/**
 * Builds the image with Docker, and saves it in the layout of OCI, which `docker load` and
 * registries read.
 * @returns the name of the archive
 */
export async function makeImage(
  { made, work, source }: Workshop,
  release: Release,
): Promise<string> {
  const { version, commit } = release;
  const name = `sales-back-office-${version}-image.tar.gz`;
  const dockerfile = await readFile(join(source, 'deploy/Dockerfile'), 'utf8');
  const base = [...dockerfile.matchAll(/^FROM (\S+)/gm)].at(-1)?.[1] ?? '';
  const labels = {
    version,
    revision: commit,
    ...(release.source && { source: release.source }),
    ...baseDigest(source, base),
  };
  const options = Object.entries(labels).flatMap(([key, value]) => [
    '--label',
    `org.opencontainers.image.${key}=${value}`,
  ]);

  run(
    source,
    'docker',
    'build',
    '-f',
    'deploy/Dockerfile',
    '-t',
    imageName(release),
    ...options,
    '.',
  );
  const saved = join(work, 'image.tar');
  run(source, 'docker', 'save', '-o', saved, imageName(release));
  await pipeline(createReadStream(saved), createGzip(), createWriteStream(join(made, name)));
  return name;
}

/**
 * Returns the label with the digest of a base image, which says what the image was built on;
 * none if the base image comes from no registry.
 */
function baseDigest(source: string, base: string): Record<string, string> {
  const named = /@(sha256:\w+)$/.exec(base)?.[1];
  if (named) return { 'base.digest': named };

  try {
    run(source, 'docker', 'pull', '--quiet', base);
  } catch {
    console.log(`  ${base} cannot be pulled: the build takes the one that is here.`);
  }
  const digests = run(
    source,
    'docker',
    'image',
    'inspect',
    '--format',
    '{{json .RepoDigests}}',
    base,
  );
  const digest = (JSON.parse(digests) as string[] | null)?.[0]?.split('@')[1];
  return digest ? { 'base.digest': digest } : {};
}

/** Writes the checksums of all files, as `sha256sum --check` reads them. */
export async function writeChecksums({ made }: Workshop): Promise<string> {
  const names = (await readdir(made)).sort();
  const lines = await Promise.all(
    names.map(async name => `${await sha256(join(made, name))}  ${name}\n`),
  );
  await writeFile(join(made, checksumFile), lines.join(''));
  return checksumFile;
}

export async function sha256(path: string): Promise<string> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(path), hash);
  return hash.digest('hex');
}
