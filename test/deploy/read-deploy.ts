import { readdir, readFile } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { parseAllDocuments } from 'yaml';
import { root } from '../support/command-line.ts';

/** A manifest of Kubernetes. Tests know its kind before they read its other fields. */
export interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: {
    readonly name: string;
    readonly labels?: Record<string, string>;
    readonly annotations?: Record<string, string>;
  };
  // biome-ignore lint/suspicious/noExplicitAny: manifests.test.ts checks each kind
  readonly [field: string]: any;
}

const kubernetes = join(root, 'deploy/kubernetes');

export function readDeploy(file: string): Promise<string> {
  return readFile(join(root, 'deploy', file), 'utf8');
}

/**
 * Parses a file of YAML, with merge keys.
 * @returns its documents
 */
export async function readYaml(file: string): Promise<unknown[]> {
  const documents = parseAllDocuments(await readDeploy(file), { merge: true, strict: true });
  if (!Array.isArray(documents)) throw new Error(`${file} is empty`);
  return documents.map(document => {
    if (document.errors.length > 0) throw new Error(`${file}: ${document.errors.join('; ')}`);
    return document.toJS() as unknown;
  });
}

/**
 * Paths of the files that the kustomization and its components apply, also those of components
 * in a comment.
 */
export async function manifestFiles(): Promise<string[]> {
  const components = await readdir(join(kubernetes, 'components'));
  const folders = ['', ...components.map(name => `components/${name}/`)];

  const files = folders.map(async folder => {
    const [{ resources }] = (await readYaml(`kubernetes/${folder}kustomization.yaml`)) as [
      { resources: string[] },
    ];
    return resources.map(file => `${folder}${file}`);
  });
  return (await Promise.all(files)).flat();
}

/**
 * Every manifest that the kustomization or a component of it applies, with the path of its
 * file.
 */
export async function readManifests(): Promise<{ file: string; manifest: Manifest }[]> {
  const manifests = await Promise.all(
    (await manifestFiles()).map(async file =>
      ((await readYaml(`kubernetes/${file}`)) as Manifest[]).map(manifest => ({ file, manifest })),
    ),
  );
  return manifests.flat();
}

/** Paths of all files in the folder of the manifests, without those that list the others. */
export async function filesOfKubernetes(): Promise<string[]> {
  const entries = await readdir(kubernetes, { recursive: true, withFileTypes: true });
  const files = entries.filter(entry => entry.isFile() && entry.name !== 'kustomization.yaml');

  return files.map(({ parentPath, name }) => relative(kubernetes, join(parentPath, name)));
}

/** The template of the pods that a manifest makes; undefined if it makes none. */
export function podTemplate({ kind, spec }: Manifest): Manifest | undefined {
  if (kind === 'CronJob') return spec.jobTemplate.spec.template;
  return kind === 'Deployment' || kind === 'Job' ? spec.template : undefined;
}
