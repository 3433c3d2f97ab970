import { execFileSync, spawnSync } from 'node:child_process';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import ts from 'typescript';
import { root } from '../support/command-line.ts';
import { compile } from '../support/compile.ts';
import {
  filesOfKubernetes,
  type Manifest,
  manifestFiles,
  podTemplate,
  readManifests,
} from './read-deploy.ts';

/** The module that has the schema and the type of a kind. */
function moduleOf({ apiVersion, kind }: Manifest): string {
  const isPrometheus = apiVersion.startsWith('monitoring.coreos.com/');
  return `${isPrometheus ? '@kubernetes-models/prometheus-operator' : 'kubernetes-models'}/${apiVersion}/${kind}`;
}

const isOfCloudNativePg = ({ apiVersion }: Manifest): boolean => apiVersion.endsWith('cnpg.io/v1');

describe('manifests of Kubernetes', () => {
  let manifests: { file: string; manifest: Manifest }[];
  let pods: { name: string; labels: Record<string, string>; spec: Manifest['spec'] }[];

  before(async () => {
    manifests = await readManifests();
    pods = manifests.flatMap(({ manifest }) => {
      const template = podTemplate(manifest);
      return template
        ? [
            {
              name: manifest.metadata.name,
              labels: template.metadata.labels ?? {},
              spec: template.spec,
            },
          ]
        : [];
    });
    expect(pods).to.have.length.greaterThan(6);
  });

  it('the kustomization and its components apply every file of their folders, and every manifest has a name of its own', async () => {
    expect(await filesOfKubernetes()).to.have.members([...(await manifestFiles()), 'settings.env']);
    const names = manifests.map(({ manifest }) => `${manifest.kind} ${manifest.metadata.name}`);
    expect(names).to.deep.equal([...new Set(names)]);
  });

  it('without a component, what is left is complete: no kind of an operator that only the component needs', async () => {
    const core = manifests.filter(({ file }) => !file.startsWith('components/'));

    const foreign = core.filter(({ manifest: { apiVersion } }) =>
      /monitoring\.coreos\.com|cnpg\.io/.test(apiVersion),
    );
    expect(foreign.map(({ file }) => file)).to.deep.equal([]);

    const sources = pods.flatMap(({ spec }) =>
      spec.volumes.flatMap(({ projected }: Manifest) => projected?.sources ?? []),
    );
    const needed = sources.filter(
      ({ secret }: Manifest) => /-ca$/.test(secret.name) && !secret.optional,
    );
    expect(needed, 'certificate authorities that CloudNativePG makes').to.deep.equal([]);
  });

  it('kubectl builds the kustomization, in which every pod has the named image and the present settings', function () {
    if (spawnSync('kubectl', ['kustomize', '--help']).status !== 0) {
      console.log('      kubectl is not installed: the kustomization is not built');
      this.skip();
    }
    const built = execFileSync('kubectl', ['kustomize', join(root, 'deploy/kubernetes')], {
      encoding: 'utf8',
    });

    expect(built)
      .to.include('image: registry.example.com/backoffice:0.2.0')
      .and.not.include('image: backoffice');
    const settings = new Set(built.match(/backoffice-settings\S*/g));
    expect([...settings], 'the name with the digest, everywhere').to.have.length(1);
  });

  it('every manifest has the fields and values of its kind in the schema of Kubernetes, and no unknown field', async () => {
    for (const { file, manifest } of manifests.filter(each => !isOfCloudNativePg(each.manifest))) {
      const { [manifest.kind]: Kind } = await import(moduleOf(manifest));
      expect(() => new Kind(manifest).validate(), file).to.not.throw();
    }

    // The validation above accepts unknown fields; the compiler refuses them in a literal of
    // the type.
    const literals = manifests.map(({ manifest }, number) => {
      const { kind } = manifest;
      const [type, module] = isOfCloudNativePg(manifest)
        ? [kind, join(root, 'test/deploy/cloud-native-pg.ts')]
        : [`I${kind}`, moduleOf(manifest)];
      const value = JSON.stringify(manifest, null, 1);
      return `import type { ${type} as Kind${number} } from '${module}';\nexport const manifest${number}: Kind${number} = ${value};`;
    });

    const folder = join(root, 'node_modules/.cache/deploy');
    await mkdir(folder, { recursive: true });
    const file = join(folder, 'manifests.ts');
    await writeFile(file, literals.join('\n'));

    compile([file], {
      strict: true,
      noEmit: true,
      skipLibCheck: true,
      types: [],
      target: ts.ScriptTarget.ES2022,
      module: ts.ModuleKind.NodeNext,
      moduleResolution: ts.ModuleResolutionKind.NodeNext,
      allowImportingTsExtensions: true,
    });
  });

  it('every pod runs as a numeric user without rights on a read-only file system, with bounded memory', () => {
    for (const { name, spec } of pods) {
      expect(spec.securityContext.runAsNonRoot, name).to.equal(true);
      expect(spec.securityContext.runAsUser, name).to.be.at.least(10_000);
      expect(spec.securityContext.seccompProfile, name).to.deep.equal({ type: 'RuntimeDefault' });
      expect(spec.automountServiceAccountToken, name).to.equal(false);
      expect(spec.enableServiceLinks, name).to.equal(false);

      for (const container of spec.containers) {
        expect(container.securityContext, name).to.deep.equal({
          allowPrivilegeEscalation: false,
          readOnlyRootFilesystem: true,
          capabilities: { drop: ['ALL'] },
        });
        expect(Object.keys(container.resources.limits), name).to.deep.equal(['memory']);
        expect(Object.keys(container.resources.requests), name).to.deep.equal(['cpu', 'memory']);
      }
    }
  });

  it('everything that serves has probes, and the pods of the service have 10 seconds more than their stop takes', () => {
    for (const { manifest } of manifests.filter(
      ({ manifest: { kind } }) => kind === 'Deployment',
    )) {
      const { containers, terminationGracePeriodSeconds } = manifest.spec.template.spec;
      for (const container of containers) {
        if (container.ports) expect(container).to.include.keys('readinessProbe', 'livenessProbe');
      }

      if (manifest.metadata.name === 'backoffice') {
        expect(terminationGracePeriodSeconds).to.equal(25 + 10);
      }
    }
  });

  it('every selector of a Deployment, Service, autoscaler, budget, policy and monitor finds what it names', () => {
    const services = manifests
      .filter(({ manifest: { kind } }) => kind === 'Service')
      .map(each => each.manifest);
    const has = (labels: Record<string, string>, wanted: Record<string, string>): boolean =>
      Object.entries(wanted).every(([label, value]) => labels[label] === value);

    for (const { manifest } of manifests) {
      const { kind, spec, metadata } = manifest;
      const wanted = {
        Deployment: spec?.selector?.matchLabels,
        PodDisruptionBudget: spec?.selector?.matchLabels,
        Service: spec?.selector,
        NetworkPolicy: spec?.podSelector?.matchLabels,
      }[kind as string];

      if (wanted && !wanted['cnpg.io/podRole']) {
        expect(
          pods.some(({ labels }) => has(labels, wanted)),
          `${kind} ${metadata.name}`,
        ).to.equal(true);
      }

      if (kind === 'ServiceMonitor') {
        expect(
          services.filter(({ metadata: { labels } }) =>
            has(labels ?? {}, spec.selector.matchLabels),
          ),
        ).to.have.length(1);
      }

      if (kind === 'HorizontalPodAutoscaler') {
        expect(
          manifests.map(({ manifest: each }) => `${each.kind} ${each.metadata.name}`),
        ).to.include(`${spec.scaleTargetRef.kind} ${spec.scaleTargetRef.name}`);
      }
    }
  });

  it('a sync brings up the databases, then migrates the control database, then the tenants, then replaces the pods', () => {
    const waves = new Map(
      manifests.map(({ manifest: { kind, metadata } }) => [
        `${kind} ${metadata.name}`,
        Number(metadata.annotations?.['argocd.argoproj.io/sync-wave'] ?? 0),
      ]),
    );

    expect(
      [
        'Cluster backoffice-control',
        'Job backoffice-migrate-control',
        'Job backoffice-migrate-tenants',
        'Deployment backoffice',
      ].map(name => waves.get(name)),
    ).to.deep.equal([-3, -2, -1, 0]);
  });

  it('every PostgreSQL server is archived where the recovery looks for it, has a base backup each night, and its pods read no other secret', async () => {
    const ofKind = (wanted: string) =>
      manifests.map(each => each.manifest).filter(({ kind }) => kind === wanted);
    const [store] = ofKind('ObjectStore');
    expect(store?.spec.retentionPolicy).to.match(/^[1-9]\d*[dwm]$/);
    const secrets = Object.values<{ name: string }>(store?.spec.configuration.s3Credentials).map(
      ({ name }) => name,
    );

    const page = await readFile(join(root, 'docs/operate/restore.md'), 'utf8');
    const [, recovered = ''] =
      /barmanObjectName: (\S+), serverName: backoffice-control /.exec(page) ?? [];
    expect(recovered).to.equal(store?.metadata.name);

    const backups = ofKind('ScheduledBackup').map(({ spec }) => [
      spec.cluster.name,
      spec.schedule.split(' ').length,
    ]);
    const clusters = ofKind('Cluster');
    expect(backups).to.have.deep.members(clusters.map(({ metadata }) => [metadata.name, 6]));

    for (const { spec } of clusters) {
      const [{ name, isWALArchiver, parameters }] = spec.plugins;
      expect(name).to.equal('barman-cloud.cloudnative-pg.io');
      expect(isWALArchiver).to.equal(true);
      expect(parameters.barmanObjectName).to.equal(recovered);
    }

    for (const { spec, name } of pods) {
      for (const secret of secrets) expect(JSON.stringify(spec), name).to.not.include(secret);
    }
  });

  it('only the ingress controller reaches the port of the API, and only Prometheus that of metrics', () => {
    const policy = manifests.find(({ manifest }) => manifest.kind === 'NetworkPolicy')?.manifest;
    const sources = policy?.spec.ingress.map(({ from, ports }: Manifest) => [
      ports.map(({ port }: Manifest) => port),
      from.map(
        ({ namespaceSelector }: Manifest) =>
          namespaceSelector.matchLabels['kubernetes.io/metadata.name'],
      ),
    ]);

    expect(sources).to.deep.equal([
      [['http'], ['ingress-nginx']],
      [['management'], ['monitoring']],
    ]);
  });
});
