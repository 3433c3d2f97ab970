import { execFileSync, spawnSync } from 'node:child_process';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { parse, parseAllDocuments } from 'yaml';
import { root } from '../support/command-line.ts';
import type { Compose } from './compose-file.ts';
import { type Manifest, podTemplate, readDeploy } from './read-deploy.ts';

/** The parts of a container that the security benchmark of Docker names (CIS, section 5). */
const parts: Readonly<Record<string, (service: Record<string, unknown>) => boolean>> = {
  cap_drop: ({ cap_drop }) => JSON.stringify(cap_drop) === '["ALL"]',
  security_opt: ({ security_opt }) =>
    Array.isArray(security_opt) && security_opt.includes('no-new-privileges:true'),
  ulimits: ({ ulimits }) => (ulimits as { core?: number } | undefined)?.core === 0,
  read_only: ({ read_only }) => read_only === true,
  pids_limit: ({ pids_limit }) => Number(pids_limit) > 0,
  mem_limit: ({ mem_limit }) => typeof mem_limit === 'string',
};
/** Parts that take the isolation of a container back. */
const weakening = ['privileged', 'pid', 'ipc', 'userns_mode', 'devices', 'cgroup_parent'];

/** The capabilities by which an image that begins as root becomes another login. */
const becoming = ['CHOWN', 'DAC_OVERRIDE', 'FOWNER', 'SETGID', 'SETUID'];

/**
 * Returns the lines of a Compose file that make a service: its own, and those of the parts that
 * it merges.
 */
function linesOf(text: string, name: string): string {
  const own = new RegExp(`^ {2}${name}:.*\\n(?: {4}.*\\n|\\n)*`, 'm').exec(text)?.[0] ?? '';
  const lines = [own];
  for (const merged of lines) {
    for (const [, anchor] of merged.matchAll(/\*([\w-]+)/g)) {
      const part = new RegExp(`^x-[\\w-]+: &${anchor}\\n(?: {2}.*\\n|\\n)*`, 'm').exec(text)?.[0];
      if (part !== undefined && !lines.includes(part)) lines.push(part);
    }
  }
  return lines.join('\n');
}

for (const file of ['deploy/compose.yaml', 'compose.yaml']) {
  describe(`hardening of ${file}`, () => {
    let text: string;
    let compose: Compose;
    before(async () => {
      text = await readFile(join(root, file), 'utf8');
      compose = parse(text, { merge: true });
    });

    it('every container has each part that the benchmark of Docker names, or a line that says why not', () => {
      for (const [name, service] of Object.entries(compose.services)) {
        const missing = Object.keys(parts).filter(part => !parts[part]?.(service));
        const lines = linesOf(text, name);
        const unexplained = missing.filter(part => !new RegExp(`# Not ${part}: \\w`).test(lines));
        expect(unexplained, name).to.deep.equal([]);
      }
    });

    it('no container takes its isolation back, and capabilities are added to change the login alone', () => {
      for (const [name, service] of Object.entries(compose.services)) {
        expect(
          weakening.filter(part => service[part] !== undefined),
          name,
        ).to.deep.equal([]);
        expect(service.network_mode ?? 'none', name).to.equal('none');
        expect(becoming, name).to.include.members((service.cap_add as string[]) ?? []);
        expect(JSON.stringify(service), name).to.not.include('docker.sock');
      }
    });

    it('each image has a tag, and a place in the environment for its digest', () => {
      for (const [name, { image }] of Object.entries(compose.services)) {
        expect(image, name).to.match(/^\$\{[A-Z]+_IMAGE:-[\w./-]+:(?!latest)[\w.-]+\}$/);
      }
    });
  });
}

describe('hardening of the kits', () => {
  it('every unit of systemd writes no core dump, and sets each option that systemd-analyze names, or says why not', async function () {
    const units = (await readdir(join(root, 'deploy'), { recursive: true })).filter(file =>
      file.endsWith('.service'),
    );
    expect(units).to.have.length.greaterThan(4);
    for (const unit of units) expect(await readDeploy(unit)).to.match(/^LimitCORE=0$/m);
    if (spawnSync('systemd-analyze', ['--version']).error) this.skip();

    for (const unit of units) {
      const text = await readDeploy(unit);
      const report = execFileSync(
        'systemd-analyze',
        ['security', '--offline=true', '--no-pager', join(root, 'deploy', unit)],
        { encoding: 'utf8' },
      );
      const named = [...report.matchAll(/^✗ (\w+)=/gm)].map(match => match[1] ?? '');

      // The families of addresses are those of the service: TCP, and sockets of this machine.
      const open = named.filter(name => name !== 'RestrictAddressFamilies');
      const unexplained = open.filter(
        name => !new RegExp(`^# (?:\\w+=, )*${name}=(?:, \\w+=)*: \\w`, 'm').test(text),
      );
      expect(unexplained, unit).to.deep.equal([]);
    }
  });

  it('every pod of the built kustomization is as the restricted standard of Kubernetes wants it, and says why its core dumps have no limit', async function () {
    if (spawnSync('kubectl', ['kustomize', '--help']).status !== 0) this.skip();
    const built = execFileSync('kubectl', ['kustomize', join(root, 'deploy/kubernetes')], {
      encoding: 'utf8',
    });
    const manifests = parseAllDocuments(built).map(document => document.toJS() as Manifest);
    const pods = manifests.flatMap(manifest => {
      const template = podTemplate(manifest);
      return template ? [{ name: manifest.metadata.name, spec: template.spec }] : [];
    });
    expect(pods).to.have.length.greaterThan(6);

    for (const { name, spec } of pods) {
      expect(spec.hostNetwork ?? spec.hostPID ?? spec.hostIPC, name).to.equal(undefined);
      expect(spec.securityContext.runAsNonRoot, name).to.equal(true);
      expect(spec.securityContext.seccompProfile.type, name).to.equal('RuntimeDefault');

      for (const container of [...spec.containers, ...(spec.initContainers ?? [])]) {
        expect(container.securityContext, name).to.deep.equal({
          allowPrivilegeEscalation: false,
          readOnlyRootFilesystem: true,
          capabilities: { drop: ['ALL'] },
        });
        expect(container.image, name).to.match(/[:@](?!latest)[\w.:-]+$/);
      }
      for (const volume of spec.volumes ?? []) {
        expect(volume, name).to.not.have.property('hostPath');
      }
    }

    expect(await readDeploy('kubernetes/deployment.yaml')).to.match(/# .*core dumps.*/);
    // One place has the digests of the images that the core applies.
    const { images } = parse(await readDeploy('kubernetes/kustomization.yaml'));
    expect(images.map(({ name }: { name: string }) => name)).to.deep.equal(['backoffice', 'redis']);
  });

  it('the balancer of the kits sends Strict-Transport-Security by TLS, and drops what strangers say of traces', async () => {
    const [, api = ''] = (await readDeploy('haproxy/haproxy.cfg')).split('\nfrontend api\n');
    const [own = ''] = api.split('\nbackend ');
    expect(own).to.match(
      /^ {2}http-response set-header Strict-Transport-Security max-age=31536000 if \{ ssl_fc \}$/m,
    );
    for (const header of ['traceparent', 'tracestate', 'baggage']) {
      expect(own).to.match(new RegExp(`^ {2}http-request del-header ${header}$`, 'm'));
    }

    const ingress = await readDeploy('kubernetes/components/ingress/ingress.yaml');
    expect(ingress).to.include('# Strict-Transport-Security: ').and.include('# traceparent: ');
  });

  it('no kit shows the handbook of operators on the public port', async () => {
    const { services } = parse(await readDeploy('compose.yaml'), { merge: true }) as Compose;
    const processes = Object.keys(services).filter(name => name.startsWith('service-'));
    expect(processes).to.have.length(2);
    for (const name of processes) expect(services[name]?.environment?.DOCS, name).to.equal('api');

    for (const file of ['kubernetes/settings.env', 'systemd/service.env']) {
      expect(await readDeploy(file), file).to.match(/^DOCS=(api|off)$/m);
    }
  });
});
