import { access, glob, readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { expect } from 'chai';
import { headingId } from '../../src/service/pages/markdown.ts';
import { root } from '../support/command-line.ts';

/** Folders whose files are not of the repository. */
const foreign = new Set(['node_modules', '.data', '.git']);

/** A link of a Markdown file to another file, or to a heading. */
interface Link {
  readonly from: string;
  /** The path of the file that it leads to, in the repository. */
  readonly to: string;
  /** The id of a heading; undefined: it leads to the file. */
  readonly id: string | undefined;
}

describe('links of the repository', () => {
  const texts = new Map<string, string>();
  let links: Link[];

  before(async () => {
    for await (const file of glob('**/*.md', { cwd: root, exclude: name => foreign.has(name) })) {
      texts.set(file, withoutCode(await readFile(join(root, file), 'utf8')));
    }
    links = [...texts].flatMap(([file, text]) => linksOf(file, text));
    expect(links).to.have.length.greaterThan(200);
  });

  it('every link of a Markdown file to a file leads to one of the repository', async () => {
    const broken: string[] = [];

    for (const { from, to } of links) {
      await access(join(root, to)).catch(() => broken.push(`${from} → ${to}`));
    }

    expect(broken).to.deep.equal([]);
  });

  it('every link of a Markdown file to a heading names a heading of the file that it leads to', () => {
    const broken = links.filter(
      ({ to, id }) => id !== undefined && !headingIds(texts.get(to) ?? '').includes(id),
    );

    expect(broken).to.deep.equal([]);
  });

  it('the pages for contributors name files and folders by their paths from the root, and all of them exist', async () => {
    const pages = ['README.md', 'ARCHITECTURE.md', 'CONTRIBUTING.md', 'STYLE.md', 'GLOSSARY.md'];
    const isPath = /`([\w.-]+\/[\w./-]*(?:\/|\.(?:ts|sql|json|md|yaml)))`/g;
    const named = pages.flatMap(page =>
      [...(texts.get(page) ?? '').matchAll(isPath)].map(([, path = '']) => `${page}: ${path}`),
    );

    const missing: string[] = [];
    for (const each of named) {
      const [, path = ''] = each.split(': ');
      await access(join(root, path)).catch(() => missing.push(each));
    }

    expect(named).to.have.length.greaterThan(60);
    expect(missing).to.deep.equal([]);
  });

  it('SECURITY.md names only tests and drills that exist', async () => {
    const files = new Set<string>();
    for await (const file of glob('test/**/*.{test,drill}.ts', { cwd: root })) {
      files.add(file.replace(/^.*\//, ''));
    }

    const named = [...(texts.get('SECURITY.md') ?? '').matchAll(/`([\w-]+\.(?:test|drill))`/g)];

    expect(named).to.have.length.greaterThan(20);
    expect(named.map(([, name]) => name).filter(name => !files.has(`${name}.ts`))).to.deep.equal(
      [],
    );
  });
});

/** The relative links of a Markdown text. */
function linksOf(from: string, text: string): Link[] {
  return [...text.matchAll(/\]\(([^)\s]+)\)/g)].flatMap(([, target = '']) => {
    if (/^[a-z]+:/.test(target)) return [];
    const [path = '', id] = target.split('#');

    return [{ from, to: path === '' ? from : join(dirname(from), path), id }];
  });
}

function headingIds(text: string): string[] {
  return [...text.matchAll(/^#{1,6} (.+)$/gm)].map(([, heading = '']) =>
    headingId(heading.replaceAll('`', '')),
  );
}

/** Leaves out blocks of code, in which a line that begins with `#` is a comment. */
function withoutCode(text: string): string {
  return text.replace(/^ *```[\s\S]*?^ *```/gm, '');
}
