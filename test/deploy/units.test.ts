import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { root } from '../support/command-line.ts';
import { readDeploy } from './read-deploy.ts';

/** The overall exposure in tenths, from 0 (none) to 100: those of the units have 13. */
const maxExposure = '14';

describe('units of systemd', () => {
  let units: { file: string; text: string }[];

  before(async () => {
    const files = (await readdir(join(root, 'deploy'), { recursive: true })).filter(file =>
      file.endsWith('.service'),
    );
    units = await Promise.all(files.map(async file => ({ file, text: await readDeploy(file) })));
    expect(units).to.have.length.greaterThan(4);
  });

  it('every unit has the same sandbox', () => {
    const sandboxes = units.map(({ text }) => /^UMask=0077\n(?:\w+=.*\n)+/m.exec(text)?.[0]);
    expect(sandboxes[0]?.split('\n')).to.have.length.greaterThan(15);
    for (const [index, { file }] of units.entries()) {
      expect(sandboxes[index], file).to.equal(sandboxes[0]);
    }
  });

  it('every unit that opens databases reads its secrets with LoadCredential, as the login that the page creates for it', async () => {
    const page = await readDeploy('../docs/deploy.md');
    const created = [...page.matchAll(/useradd .* ([\w-]+)$/gm)].map(match => match[1]);
    expect(created).to.deep.equal(['backoffice', 'backoffice-operator']);

    for (const { file, text } of units.filter(each => each.file.startsWith('systemd/'))) {
      expect(created, file).to.include(/^User=(.*)$/m.exec(text)?.[1]);

      for (const [variable, id] of [
        ['DATABASE_URL', 'database-url'],
        ['MASTER_KEY', 'master-key'],
        ['MASTER_KEY_PREVIOUS', 'master-key-previous'],
      ]) {
        expect(text, file).to.match(new RegExp(`^LoadCredential=${id}:/etc/backoffice/`, 'm'));
        expect(text, file).to.include(`\nEnvironment=${variable}_FILE=%d/${id}\n`);
      }
    }
  });

  it('systemctl reload goes by a command that sends SIGHUP to a primary process, and refuses to end the only process', async () => {
    const reload = /^ExecReload=\/opt\/backoffice\/(\S+) \$MAINPID$/m.exec(
      await readDeploy('systemd/backoffice.service'),
    );
    const program = join(root, reload?.[1] ?? '');
    const run = async (code: string) => {
      const child = spawn(process.execPath, [
        '-e',
        `setInterval(() => {}, 1_000); ${code}; console.log('ready')`,
      ]);
      await once(child.stdout, 'data');
      const { status, stderr } = spawnSync(program, [String(child.pid)], { encoding: 'utf8' });
      return { child, status, stderr };
    };

    const worker = `const worker = require('node:child_process').spawn('sleep', ['60'])`;
    const primary = await run(
      `${worker}; process.on('SIGHUP', () => { worker.kill(); process.exit(7); })`,
    );
    expect(primary.status).to.equal(0);
    expect(await once(primary.child, 'exit')).to.deep.equal([7, null]);

    const only = await run(
      "for (const signal of ['SIGTERM', 'SIGHUP']) process.on(signal, () => process.exit(8))",
    );
    expect(only.status).to.equal(1);
    expect(only.stderr).to.match(
      /^The service runs in one process, .* Run: systemctl restart backoffice\n$/,
    );
    only.child.kill('SIGTERM');
    expect(await once(only.child, 'exit')).to.deep.equal([8, null]);
  });

  it('systemctl reload returns when every worker of before is gone, and does not wait for the new ones', async () => {
    const code = `
      import { spawn } from 'node:child_process';
      import { once } from 'node:events';
      const work = () => spawn(process.execPath, ['-e', 'process.stdin.resume()']);
      const former = [work(), work()];
      process.on('SIGHUP', async () => {
        work();
        for (const each of former) {
          each.stdin.end();
          await once(each, 'exit');
        }
        console.log('replaced');
      });
      console.log('ready');
    `;
    const primary = spawn(process.execPath, ['--input-type=module', '-e', code]);
    const lines = primary.stdout.setEncoding('utf8')[Symbol.asyncIterator]();
    expect((await lines.next()).value).to.equal('ready\n');

    const { status } = spawnSync(join(root, 'deploy/systemd/reload'), [String(primary.pid)]);

    expect(status).to.equal(0);
    expect((await lines.next()).value).to.equal('replaced\n');
    primary.kill('SIGKILL');
  });

  it('systemd-analyze rates the exposure of every unit as low', function () {
    if (spawnSync('systemd-analyze', ['--version']).error) {
      console.log('systemd-analyze is not installed: the exposure of the units is not tested');
      this.skip();
    }

    const paths = units.map(({ file }) => join(root, 'deploy', file));
    for (const path of paths) {
      execFileSync('systemd-analyze', [
        'security',
        '--offline=true',
        `--threshold=${maxExposure}`,
        path,
      ]);
    }
  });
});
