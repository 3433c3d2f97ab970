import { access, readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { root } from '../support/command-line.ts';

describe('the page of dependencies', () => {
  let page: string;

  before(async () => {
    page = await readFile(join(root, 'docs/dependencies.md'), 'utf8');
  });

  it('the page of dependencies has a row with every package that the service needs, and names no other one', async () => {
    const { dependencies } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'));
    const [, table = ''] = /## The packages\n(.*?)\n\n[^|\n]/s.exec(page) ?? [];
    const rows = [...table.matchAll(/^\| ([^|]+) \|/gm)].slice(2).map(match => match[1] ?? '');
    const named = rows.flatMap(cell => cell.split(', ')).filter(name => !name.endsWith('…'));

    expect(named).to.have.members(Object.keys(dependencies));
  });

  it('the page of seams has a row with each of its files, and a test for each private part', async () => {
    const folder = join(root, 'src/lib/seams');
    const seams = await readFile(join(folder, 'README.md'), 'utf8');
    const rows = [...seams.matchAll(/^\| .* \| `([\w-]+\.ts)` \| (`test\/.*`) \|$/gm)];
    const files = (await readdir(folder)).filter(name => name.endsWith('.ts'));

    expect(rows.map(([, file]) => file)).to.have.members(files);
    for (const [, test = ''] of rows.flatMap(([, , tests = '']) => [
      ...tests.matchAll(/`([^`]+)`/g),
    ])) {
      await access(join(root, test));
    }
  });

  it('the page of dependencies names files that exist', async () => {
    for (const [, file = ''] of page.matchAll(
      /`((?:src|test|scripts|deploy)\/[^`]+\.\w+|mikro-orm\.config\.ts)`/g,
    )) {
      await access(join(root, file));
    }
  });
});
