import { readdir, readFile } from 'node:fs/promises';
import { expect } from 'chai';

const root = new URL('../../', import.meta.url);

describe('glossary', () => {
  let terms: string[];

  before(async () => {
    const text = await readFile(new URL('GLOSSARY.md', root), 'utf8');
    terms = [...text.matchAll(/^- \*\*(.+?)\*\*: /gm)].map(([, term = '']) => term);
    expect(terms).to.have.lengthOf([...text.matchAll(/^- /gm)].length);
  });

  it('the glossary has its terms in alphabetical order, each of them once', () => {
    expect(terms).to.not.have.lengthOf(0);
    expect(terms).to.deep.equal([...new Set(terms)].sort((a, b) => (a < b ? -1 : 1)));
  });

  it('each term of the glossary occurs in src, in a text or as a name', async () => {
    const source = new URL('src/', root);
    const files = (await readdir(source, { recursive: true })).filter(file => file.endsWith('.ts'));
    const code = (
      await Promise.all(files.map(file => readFile(new URL(file, source), 'utf8')))
    ).join('\n');
    const unused = terms.filter(
      term => !new RegExp(`\\b${term.replaceAll(' ', '[ -]?')}`, 'i').test(code),
    );
    expect(unused).to.deep.equal([]);
  });

  it('ARCHITECTURE.md and CONTRIBUTING.md link to the glossary', async () => {
    for (const name of ['ARCHITECTURE.md', 'CONTRIBUTING.md']) {
      expect(await readFile(new URL(name, root), 'utf8'), name).to.include('](GLOSSARY.md)');
    }
  });
});
