import { access, readFile } from 'node:fs/promises';
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

  it('the page of dependencies names files that exist, and a test for each private part', async () => {
    const [, parts = ''] = /## Private parts\n(.*?)\n## /s.exec(page) ?? [];
    const rows = parts
      .split('\n')
      .filter(line => line.startsWith('| '))
      .slice(2);
    for (const row of rows) {
      expect(row).to.match(/`test\/[^`]+\.test\.ts`/);
    }

    for (const [, file = ''] of page.matchAll(
      /`((?:src|test|scripts|deploy)\/[^`]+\.\w+|mikro-orm\.config\.ts)`/g,
    )) {
      await access(join(root, file));
    }
  });
});
