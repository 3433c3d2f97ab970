import { spawnSync } from 'node:child_process';
import { cp, mkdir, mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import {
  makeClient,
  makeImage,
  makeSource,
  type Workshop,
  writeChecksums,
  writeNotes,
  writeSbom,
} from './artefacts.ts';
import { checkChecksums, checkClient, checkImage, checkSource } from './checks.ts';
import { checkConditions, findFrozen, type Release } from './conditions.ts';
import { ReleaseError, reportFailure, run } from './run.ts';
import { startService } from './service.ts';

// Makes what a release page carries, from the commit that the file of the version
// in migrations/released names, and checks each file: npm run release -- --into FOLDER. It
// publishes nothing. CONTRIBUTING.md has the steps around it.

const root = join(import.meta.dirname, '../..');

/** @throws {ReleaseError} when the folder has something in it */
async function requireNew(folder: string): Promise<void> {
  const names = await readdir(folder).catch(() => []);
  if (names.length > 0) throw new ReleaseError(`${folder} is not empty: name a new folder.`);
}

function whyNoImage(): string | undefined {
  const { status, error } = spawnSync('docker', ['version'], { stdio: 'ignore' });
  if (status === 0) return undefined;
  return error ? 'there is no docker here' : 'docker version fails';
}

async function makeRelease(workshop: Workshop, release: Release): Promise<void> {
  const { source, work, made } = workshop;

  say('source');
  const archive = await makeSource(workshop, release);
  await checkSource(workshop, release);

  say('SBOM');
  const sbom = await writeSbom(workshop, release);

  say('client');
  const client = await makeClient(workshop);

  say('npm ci and npm start in the unpacked source, and the program of the client against it');
  run(source, 'npm', 'ci');
  const service = await startService(source, work);
  try {
    await checkClient(workshop, client, service);
  } finally {
    await service.stop();
  }

  let image: string | undefined;
  const reason = whyNoImage();
  if (reason) {
    say(`no image: ${reason}. On a machine with Docker, the same command adds it`);
  } else {
    say('image');
    image = await makeImage(workshop, release);
    say('compose.yaml with the image');
    await checkImage(workshop, release, { archive: image, sbom });
  }

  say('notes and checksums');
  await writeNotes(workshop, release, { archive, client, sbom, image });
  await writeChecksums(workshop);
  await checkChecksums(workshop);

  for (const name of (await readdir(made)).sort()) {
    const { size } = await stat(join(made, name));
    console.log(`${String(Math.ceil(size / 1_024)).padStart(9)} KiB  ${name}`);
  }
}

function say(step: string): void {
  console.log(`- ${step}`);
}

/**
 * Reads the folder from the arguments. npm runs this in the folder of the project: a relative
 * one begins where somebody typed it.
 * @throws {ReleaseError} with the usage, for any other arguments
 */
function readFolder(): string {
  try {
    const { values } = parseArgs({ options: { into: { type: 'string' } } });
    if (values.into) return values.into;
  } catch {
    // The usage says more than the text of Node.
  }
  throw new ReleaseError('Name a folder for the files: npm run release -- --into FOLDER');
}

async function main(): Promise<void> {
  const folder = resolve(process.env.INIT_CWD ?? '.', readFolder());
  await requireNew(folder);
  const release = await findFrozen(root, await checkConditions(root));

  const work = await mkdtemp(join(tmpdir(), 'backoffice-release-'));
  try {
    const made = join(work, 'made');
    await mkdir(made);
    const source = join(work, `sales-back-office-${release.version}`);
    await makeRelease({ root, made, work, source }, release);
    await cp(made, folder, { recursive: true });
  } finally {
    await rm(work, { recursive: true, force: true });
  }
  console.log(
    `${folder} has the release ${release.version} of ${release.commit.slice(0, 12)}. Nothing is published.`,
  );
}

await reportFailure(main);
