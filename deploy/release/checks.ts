import { mkdir, readdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { checksumFile, imageName, sha256, type Workshop } from './artefacts.ts';
import type { Release } from './conditions.ts';
import { environment, ReleaseError, run } from './run.ts';
import { listedPackages } from './sbom.ts';
import { freePort, type StartedService } from './service.ts';

/** Checks that the archive of the source has each file of the commit. */
export async function checkSource({ root, source }: Workshop, { commit }: Release): Promise<void> {
  const committed = run(root, 'git', 'ls-tree', '-r', '--name-only', '-z', commit)
    .split('\0')
    .filter(Boolean);
  const entries = await readdir(source, { recursive: true, withFileTypes: true });
  const files = new Set(
    entries
      .filter(entry => !entry.isDirectory())
      .map(({ parentPath, name }) => join(parentPath, name).slice(source.length + 1)),
  );

  const missing = committed.filter(name => !files.has(name));
  if (missing.length > 0 || files.size !== committed.length) {
    throw new ReleaseError(
      `The archive of the source and the commit differ: ${missing.slice(0, 5).join(', ')}`,
    );
  }
}

const strictProject = {
  compilerOptions: {
    target: 'es2022',
    module: 'nodenext',
    types: ['node'],
    strict: true,
    noUncheckedIndexedAccess: true,
    exactOptionalPropertyTypes: true,
    noEmitOnError: true,
    outDir: 'dist',
    rootDir: '.',
  },
  files: ['program.ts'],
};

/**
 * Installs the package of the client in an empty project without a network, compiles the
 * program of its README there, with the strictest settings and with the types of the package,
 * and runs it.
 * @param name of the package
 */
export async function checkClient(
  { made, work, source }: Workshop,
  name: string,
  { url, tenant, email, password }: StartedService,
): Promise<void> {
  const folder = join(work, 'project');
  const program = /```ts\n(.*?)```/s.exec(
    await readFile(join(source, 'clients/typescript/README.md'), 'utf8'),
  )?.[1];
  await mkdir(folder);
  await writeFile(
    join(folder, 'package.json'),
    '{ "name": "project", "private": true, "type": "module" }',
  );
  await writeFile(join(folder, 'tsconfig.json'), JSON.stringify(strictProject));
  await writeFile(join(folder, 'program.ts'), program ?? '');

  run(folder, 'npm', 'install', '--offline', '--no-audit', join(made, name));
  await checkPackage(join(folder, 'node_modules/sales-back-office-client'), folder);
  await mkdir(join(folder, 'node_modules/@types'));
  for (const types of ['@types/node', 'undici-types']) {
    await symlink(join(source, 'node_modules', types), join(folder, 'node_modules', types));
  }
  run(folder, process.execPath, join(source, 'node_modules/typescript/bin/tsc'));

  const given = { URL_OF_SERVICE: url, TENANT: tenant, EMAIL: email, PASSWORD: password };
  const printed = withEnvironment(given, () => run(folder, process.execPath, 'dist/program.js'));
  if (!printed.includes('exists already')) {
    throw new ReleaseError(
      `The program of the client's README does not end as it says:\n${printed}`,
    );
  }
}

/**
 * Checks that an installed client depends on nothing, runs nothing when it is installed, and
 * has its types and its licence.
 */
async function checkPackage(folder: string, project: string): Promise<void> {
  const manifest = JSON.parse(await readFile(join(folder, 'package.json'), 'utf8'));
  const files = await readdir(folder, { recursive: true });
  const expected = ['LICENSE', 'README.md', 'dist/back-office.js', 'dist/back-office.d.ts'];
  const installed = (await readdir(join(project, 'node_modules'))).filter(
    name => !name.startsWith('.'),
  );

  const missing = expected.filter(name => !files.includes(name));
  if (missing.length > 0) {
    throw new ReleaseError(`The package of the client lacks ${missing.join(', ')}.`);
  }
  if (manifest.dependencies || installed.length > 1) {
    throw new ReleaseError(`The package of the client depends on others: ${installed.join(', ')}.`);
  }
  if (manifest.scripts) {
    const names = Object.keys(manifest.scripts).join(', ');
    throw new ReleaseError(`The package of the client has scripts, which npm reports: ${names}.`);
  }
}

function withEnvironment<T>(variables: Record<string, string>, work: () => T): T {
  Object.assign(environment, variables);
  try {
    return work();
  } finally {
    for (const name of Object.keys(variables)) {
      delete environment[name];
    }
  }
}

/** Checks that each file is what its checksum says, and that each has one. */
export async function checkChecksums({ made }: Workshop): Promise<void> {
  const lines = (await readFile(join(made, checksumFile), 'utf8')).trimEnd().split('\n');
  const sums = new Map(lines.map(line => [line.slice(66), line.slice(0, 64)]));

  for (const name of (await readdir(made)).filter(each => each !== checksumFile)) {
    if (sums.get(name) !== (await sha256(join(made, name)))) {
      throw new ReleaseError(`${name} is not what ${checksumFile} says.`);
    }
  }
}

/**
 * Loads the image from its archive, compares its packages with the list, and starts it with
 * `compose.yaml`: a tenant is provisioned, and its administrator logs in.
 * @param archive name of the archive
 * @param sbom name of the list of packages
 */
export async function checkImage(
  { made, source }: Workshop,
  release: Release,
  { archive, sbom }: { archive: string; sbom: string },
): Promise<void> {
  const image = imageName(release);
  run(source, 'docker', 'image', 'rm', image);
  run(source, 'docker', 'load', '-i', join(made, archive));
  await checkArchive(join(made, archive));
  await checkPackages(source, image, join(made, sbom));

  const port = String(await freePort());
  const project = `backoffice-release-${process.pid}`;
  const compose = (...args: string[]): string =>
    withEnvironment({ BACKOFFICE_IMAGE: image, PORT: port }, () =>
      run(source, 'docker', 'compose', '--project-name', project, ...args),
    );
  try {
    compose('up', '--wait', '--no-build');
    const admin = 'admin@release.test';
    const provisioned = compose(
      'run',
      '--rm',
      '-T',
      'backoffice',
      'provision',
      'release',
      '--name',
      'Release',
      '--admin-email',
      admin,
      '--json',
    );
    await logIn(`http://127.0.0.1:${port}`, provisioned, admin);
  } finally {
    compose('--profile', 'commands', 'down', '--volumes', '--timeout', '30');
  }
}

async function checkArchive(path: string): Promise<void> {
  const files = run('/', 'tar', '-tzf', path).split('\n');
  for (const name of ['oci-layout', 'index.json']) {
    if (!files.includes(name)) {
      throw new ReleaseError(`The archive of the image has no ${name}: save it with Docker 25.`);
    }
  }
}

/** Checks that each package that the image has is in the list. */
async function checkPackages(source: string, image: string, sbom: string): Promise<void> {
  const listed = new Set(listedPackages(JSON.parse(await readFile(sbom, 'utf8')).components));
  const program = `
    const { packages } = JSON.parse(require('node:fs').readFileSync('node_modules/.package-lock.json', 'utf8'));
    const installed = Object.entries(packages).filter(([path]) => require('node:fs').existsSync(path));
    console.log(JSON.stringify(installed.map(([path, { name, version }]) =>
      (name ?? path.split('node_modules/').pop()) + '@' + version)));`;
  const printed = run(
    source,
    'docker',
    'run',
    '--rm',
    '--network',
    'none',
    image,
    '--eval',
    program,
  );

  const installed = JSON.parse(printed) as string[];
  const missing = installed.filter(each => !listed.has(each));
  if (installed.length === 0 || missing.length > 0) {
    throw new ReleaseError(`The SBOM lacks packages of the image: ${missing.join(', ')}`);
  }
}

async function logIn(url: string, provisioned: string, email: string): Promise<void> {
  const { guid, password } = credentialsOf(provisioned);
  const response = await fetch(`${url}/api/v1/auth/login`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', 'X-Tenant': guid },
    body: JSON.stringify({ email, password }),
  });
  if (response.status !== 200) {
    throw new ReleaseError(`A login of the image is refused with ${response.status}.`);
  }
}

function credentialsOf(provisioned: string): { guid: string; password: string } {
  const read = (name: string): string =>
    new RegExp(`"${name}": *"([^"]+)"`).exec(provisioned)?.[1] ?? '';
  return { guid: read('guid'), password: read('password') };
}
