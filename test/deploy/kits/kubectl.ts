import { existsSync } from 'node:fs';
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { makeCertificate } from '../../support/certificate.ts';
import { type Manifest, podTemplate, readDeploy, readManifests } from '../read-deploy.ts';
import { onMachine } from './kit.ts';
import { beginServer } from './postgres.ts';
import { fail, note, runInImage, scratch, tryService, variable } from './programs.ts';

// Stands for kubectl, and for a cluster with CloudNativePG: does what the manifests say with
// the programs of this machine.

const args = process.argv.slice(3);
await note(`kubectl ${args.join(' ')}`);
const words = args[0] === '-n' ? args.slice(2) : args;
const [verb = '', kind = ''] = words;
const state = (name: string): string => join(scratch, 'cluster', name);
if (verb === 'create' && kind === 'secret') await createSecret(words[3] ?? '', words.slice(4));
else if (verb === 'apply') await apply(words[words.indexOf('-l') + 1] ?? '');
else if (verb === 'exec') await exec(words);
else if (verb === 'rollout' && !existsSync(state(words[2] ?? ''))) fail(`${words[2]} not found`);

/** Stores the values of a secret as files of a folder. */
async function createSecret(name: string, options: readonly string[]): Promise<void> {
  const folder = state(`secret/${name}`);
  await mkdir(folder, { recursive: true });
  for (const option of options) {
    const [, source, key = '', value] =
      /^--(from-literal|from-file|cert|key)=([^=]*)(?:=(.*))?$/s.exec(option) ?? [];
    if (source === 'from-literal') await writeFile(join(folder, key), value ?? '');
    if (source === 'from-file') await writeFile(join(folder, key), await readFile(value ?? key));
    if (source === 'cert') await writeFile(join(folder, 'tls.crt'), await readFile(key));
    if (source === 'key') await writeFile(join(folder, 'tls.key'), await readFile(key));
  }
}

/** Applies the manifests of an order: starts servers, runs Jobs, and tries Deployments. */
async function apply(selector: string): Promise<void> {
  const order = /^backoffice\/order=(\d)$/.exec(selector)?.[1];
  const manifests = (await readManifests()).map(each => each.manifest);
  for (const manifest of manifests.filter(
    each => each.metadata.labels?.['backoffice/order'] === order,
  )) {
    const { kind, metadata } = manifest;
    await note(`applied ${kind} ${metadata.name}`);
    if (kind === 'Cluster') await startCluster(metadata.name);
    if (kind === 'Job') await runInImage(container(manifest).args, await variables(manifest));
    if (kind !== 'Deployment' || metadata.name === 'backoffice-redis') continue;
    const pod = await variables(manifest);
    if (metadata.name === 'backoffice') await tryService(['src/main.ts'], pod);
    await mkdir(state(`deployment/${metadata.name}`), { recursive: true });
  }
}

/** Starts a PostgreSQL server with a certificate of its own, as CloudNativePG does. */
async function startCluster(name: string): Promise<void> {
  const secret = state(`secret/${name}-login`);
  const password = await readFile(join(secret, 'password'), 'utf8');
  const login = {
    name: await readFile(join(secret, 'username'), 'utf8'),
    password,
    attributes: 'createdb createrole',
  };
  const authority = state(`secret/${name}-ca`);
  if (existsSync(authority)) return;

  await mkdir(authority, { recursive: true });
  const files = [join(authority, 'ca.crt'), join(authority, 'ca.key')] as const;
  await makeCertificate(`${name}-rw`, files);
  await beginServer(name === 'backoffice-control' ? 0 : 1, login, files);
}

/** Runs a program in the pod of a Deployment that was applied. */
async function exec(line: readonly string[]): Promise<void> {
  const target = line.find(word => word.startsWith('deployment/')) ?? '';
  if (!existsSync(state(target))) fail(`${target} not found`);
  const manifest = (await readManifests()).find(
    each => `deployment/${each.manifest.metadata.name}` === target,
  )?.manifest;
  const [program, ...rest] = line.slice(line.indexOf('--') + 1);
  const entry = JSON.parse(
    /^ENTRYPOINT (.*)$/m.exec(await readDeploy('Dockerfile'))?.[1] ?? '[]',
  ) as string[];
  if (!manifest || [program, ...rest].slice(0, entry.length).join(' ') !== entry.join(' ')) {
    fail(`no program ${program}`);
  }

  await runInImage(rest.slice(entry.length - 1), await variables(manifest));
}

function container(manifest: Manifest): Manifest {
  return podTemplate(manifest)?.spec.containers[0];
}

/**
 * The variables of a pod. Its secrets are mounted, and those of another pod are not there any
 * more.
 */
async function variables(manifest: Manifest): Promise<Record<string, string>> {
  const folder = join(scratch, 'run/secrets/backoffice');
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { recursive: true });

  for (const { secret } of podTemplate(manifest)?.spec.volumes[0].projected.sources ?? []) {
    const { name, optional } = secret;
    const items =
      secret.items ?? (await readdir(state(`secret/${name}`))).map(key => ({ key, path: key }));

    for (const { key, path } of items) {
      const file = join(state(`secret/${name}`), key);
      if (existsSync(file)) {
        await writeFile(join(folder, path), onMachine(await readFile(file, 'utf8'), scratch), {
          mode: 0o440,
        });
      } else if (!optional) {
        fail(`secret ${name} has no key ${key}`);
      }
    }
  }

  const settings = [...(await readDeploy('kubernetes/settings.env')).matchAll(/^(\w+)=(.+)$/gm)];
  const env: { name: string; value: string }[] = container(manifest).env ?? [];

  return Object.fromEntries([
    ...settings.map(([, name, value = '']) => [name, value]),
    ...env.map(({ name, value }) => [name, onMachine(value, scratch)]),
    ['AWS_ENDPOINT_URL', variable('KIT_STORE')],
  ]);
}
