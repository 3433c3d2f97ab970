import { execFile } from 'node:child_process';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { root } from '../support/command-line.ts';
import { type CopiedBuild, copyBuild } from '../support/next-build.ts';

const run = promisify(execFile);

/** The recipes of `docs/contribute` that change code. Each has a patch beside this file. */
const recipes = ['resource', 'field', 'command', 'finding', 'event'];
/** Patches on top of a recipe: a field of each kind, beside that of `field`. */
const further = ['field-kinds'];

const folders = ['src', 'migrations', 'scripts', 'test', 'tenants', 'docs', 'deploy', 'clients'];
const files = ['tsconfig.json', '.env.example'];

/** The tests that the recipes name, as far as they concern what the patches add. */
const tests = [
  'test/sales/resources/contract.test.ts',
  'test/sales/resources/field-kinds.test.ts',
  'test/docs/samples.test.ts',
  'test/operator/registry/note.test.ts',
  'test/operator/command/operations.test.ts',
  'test/operator/doctor/suspended-tenant.test.ts',
  'test/docs/handbook.test.ts',
];
const titles = [
  'Brand',
  'TaxCode.*Note',
  'a POST of TaxCode',
  'a field of each kind',
  'every resource of the catalogue',
  'sample for curl',
  'note',
  'plan is another one',
  'doctor: suspended',
  'has a row for every',
].join('|');

describe('recipes of docs/contribute', function () {
  this.timeout(600_000);
  let build: CopiedBuild;

  before(async () => {
    build = await copyBuild(...folders, ...files);
    for (const recipe of [...recipes, ...further]) {
      await run('git', ['apply', join(root, 'test/recipes', `${recipe}.patch`)], {
        cwd: build.file('.'),
      });
    }
  });
  after(() => build.remove());

  it('CONTRIBUTING.md lists every recipe, and every patch belongs to one', async () => {
    const pages = await readdir(join(root, 'docs/contribute'));
    const patches = (await readdir(join(root, 'test/recipes'))).filter(each =>
      each.endsWith('.patch'),
    );

    const contributing = await readFile(join(root, 'CONTRIBUTING.md'), 'utf8');

    const listed = [...contributing.matchAll(/\]\(docs\/contribute\/([\w-]+\.md)\)/g)];
    expect(listed.map(([, page]) => page)).to.have.members(pages);
    expect(patches).to.have.members([...recipes, ...further].map(recipe => `${recipe}.patch`));
    expect(pages).to.include.members(recipes.map(recipe => `${recipe}.md`));
  });

  it('the recipes can be followed together, and the project builds after them', async () => {
    const project = { extends: './tsconfig.json', include: ['src', 'migrations', ...tests] };
    await writeFile(build.file('tsconfig.recipes.json'), JSON.stringify(project));

    const { failure } = await node(
      'node_modules/typescript/bin/tsc',
      '--project',
      'tsconfig.recipes.json',
    );

    expect(failure).to.equal('');
  });

  it('the tests that the recipes name pass after them', async () => {
    await node('deploy/generate.ts');

    const { failure, stdout } = await node(
      'node_modules/mocha/bin/mocha.js',
      '--grep',
      titles,
      ...tests,
    );

    expect(failure).to.equal('');
    expect(Number(/(\d+) passing/.exec(stdout)?.[1])).to.be.greaterThan(30);
  });

  /** Runs a program of the build, with a PostgreSQL of its own. */
  async function node(...args: string[]): Promise<{ failure: string; stdout: string }> {
    const { PATH = '', HOME = '' } = process.env;
    return run(process.execPath, args, {
      cwd: build.file('.'),
      env: { PATH, HOME },
      maxBuffer: 1 << 26,
    }).then(
      ({ stdout }) => ({ failure: '', stdout }),
      ({ stdout, stderr }: { stdout: string; stderr: string }) => ({
        failure: `${stdout}${stderr}`,
        stdout,
      }),
    );
  }
});
