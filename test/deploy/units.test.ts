import { execFileSync, spawnSync } from 'node:child_process';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { root } from '../support/command-line.ts';
import { readDeploy } from './read-deploy.ts';

/** The overall exposure in tenths, from 0 (none) to 100: those of the units have 19. */
const maxExposure = '20';

describe('units of systemd', () => {
  let units: { file: string; text: string }[];

  before(async () => {
    const files = (await readdir(join(root, 'deploy'), { recursive: true })).filter(file => file.endsWith('.service'));
    units = await Promise.all(files.map(async file => ({ file, text: await readDeploy(file) })));
    expect(units).to.have.length.greaterThan(4);
  });

  it('every unit has the same sandbox', () => {
    const sandboxes = units.map(({ text }) => /^UMask=0077\n(?:\w+=.*\n)+/m.exec(text)?.[0]);
    expect(sandboxes[0]?.split('\n')).to.have.length.greaterThan(15);
    for (const [index, { file }] of units.entries()) expect(sandboxes[index], file).to.equal(sandboxes[0]);
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
      ]) {
        expect(text, file).to.match(new RegExp(`^LoadCredential=${id}:/etc/backoffice/`, 'm'));
        expect(text, file).to.include(`\nEnvironment=${variable}_FILE=%d/${id}\n`);
      }
    }
  });

  it('systemd-analyze rates the exposure of every unit as low', function () {
    if (spawnSync('systemd-analyze', ['--version']).error) {
      console.log('systemd-analyze is not installed: the exposure of the units is not tested');
      this.skip();
    }
    const paths = units.map(({ file }) => join(root, 'deploy', file));
    for (const path of paths)
      execFileSync('systemd-analyze', ['security', '--offline=true', `--threshold=${maxExposure}`, path]);
  });
});
