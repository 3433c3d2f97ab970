import { readdir, readFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import ts from 'typescript';
import { permissions } from '../src/control/permissions.ts';
import { apiRoutes } from '../src/routes.ts';

const root = fileURLToPath(new URL('..', import.meta.url));

/**
 * The rooms of the project, from top to bottom: a file imports its own room and those of lower lines. A room is a
 * folder of `src`, or a file that lies loose in `src`.
 */
const layers = [
  ['scripts', 'mikro-orm.config'],
  ['main'],
  ['workers'],
  ['process'],
  ['server'],
  ['services'],
  ['app', 'operator'],
  ['routes'],
  ['route-steps', 'people', 'account-pages', 'open-databases'],
  ['tenant-entities'],
  ['webhooks'],
  ['auth', 'imports', 'events'],
  ['mails'],
  ['resources', 'activity', 'audit', 'usage', 'docs'],
  ['tenancy', 'metrics'],
  ['response-cache'],
  ['connections', 'lists', 'installation'],
  ['control', 'http', 'embedded'],
  ['log', 'budget'],
  ['postgres'],
  ['errors'],
  ['runtime'],
  ['tracing'],
  ['config'],
];

/** The rooms of `src/operator`, from top to bottom, by the same rule. */
const operatorLayers = [
  ['cli'],
  ['console'],
  ['doctor'],
  ['control'],
  ['lifecycle'],
  ['recovery'],
  ['backup'],
  ['retention', 'servers'],
  ['databases'],
  ['schema'],
  ['people'],
  ['tenants'],
  ['command'],
];

interface SourceFile {
  path: string;
  text: string;
  /** Without comments. */
  code: string;
}

async function sources(folder: string): Promise<SourceFile[]> {
  const entries = await readdir(join(root, folder), { recursive: true });
  const paths = entries
    .filter(entry => entry.endsWith('.ts') && !entry.includes('node_modules'))
    .map(entry => join(folder, entry));
  return Promise.all(
    paths.sort().map(async path => {
      const text = await readFile(join(root, path), 'utf8');
      const code = text.replace(/^\s*(\/\*[\s\S]*?\*\/|\/\/.*)$/gm, '').replace(/ \/\/ .*$/gm, '');
      return { path, text, code };
    }),
  );
}

/** `src/http/route.ts` → `http`, `src/app.ts` → `app`, `scripts/tenant.ts` → `scripts`. */
function roomOf(path: string): string {
  const [first = '', ...rest] = path.replace(/^src\//, '').split('/');
  return rest.length > 0 ? first : first.replace(/\.ts$/, '');
}

/** `src/operator/databases/fence.ts` → `databases`. */
const operatorRoomOf = (path: string): string => roomOf(path.slice('src/operator/'.length));

/**
 * Returns the imports between rooms that do not lead downwards.
 * @throws when a file is in a room that no line of `order` names
 */
function upwardImports(files: readonly SourceFile[], order: readonly string[][], room: (path: string) => string) {
  const paths = new Set(files.map(({ path }) => path));
  const layerOf = (path: string): number => {
    const layer = order.findIndex(rooms => rooms.includes(room(path)));
    if (layer < 0) throw new Error(`${path}: say in test/architecture.test.ts in which layer ${room(path)} is`);
    return layer;
  };
  return files.flatMap(file =>
    importsOf(file)
      .filter(imported => paths.has(imported) && room(imported) !== room(file.path))
      .filter(imported => layerOf(file.path) >= layerOf(imported))
      .map(imported => `${file.path} imports ${imported}`),
  );
}

/** The files of ours that a file imports, types included, as paths from the root of the project. */
function importsOf({ path, text }: SourceFile): string[] {
  return ts
    .preProcessFile(text, true, true)
    .importedFiles.filter(({ fileName }) => fileName.startsWith('.'))
    .map(({ fileName }) => join(dirname(path), fileName));
}

/** The first cycle that a depth-first search meets, as the path through it; undefined when there is none. */
function findCycle(graph: ReadonlyMap<string, readonly string[]>): string[] | undefined {
  const finished = new Set<string>();
  const path: string[] = [];
  const visit = (node: string): string[] | undefined => {
    if (path.includes(node)) return [...path.slice(path.indexOf(node)), node];
    if (finished.has(node)) return undefined;
    path.push(node);
    for (const next of graph.get(node) ?? []) {
      const cycle = visit(next);
      if (cycle) return cycle;
    }
    path.pop();
    finished.add(node);
    return undefined;
  };
  for (const node of graph.keys()) {
    const cycle = visit(node);
    if (cycle) return cycle;
  }
  return undefined;
}

describe('architecture', () => {
  let src: SourceFile[];
  let migrations: SourceFile[];
  let scripts: SourceFile[];
  let config: SourceFile;
  let all: SourceFile[];

  before(async () => {
    [src, migrations, scripts] = await Promise.all([sources('src'), sources('migrations'), sources('scripts')]);
    const text = await readFile(join(root, 'mikro-orm.config.ts'), 'utf8');
    config = { path: 'mikro-orm.config.ts', text, code: text };
    all = [...src, ...migrations, ...scripts, config];
    expect(src.length).to.be.greaterThan(40);
  });

  it('the imports of the source files form no cycle, type imports included', () => {
    const graph = new Map([...src, ...scripts, config].map(file => [file.path, importsOf(file)]));
    expect(findCycle(graph)?.join(' → ')).to.equal(undefined);
    expect(
      findCycle(
        new Map([
          ['a', ['b']],
          ['b', ['c']],
          ['c', ['b']],
        ]),
      ),
    ).to.deep.equal(['b', 'c', 'b']);
  });

  it('every room imports only the rooms below it', () => {
    expect(upwardImports([...src, ...scripts, config], layers, roomOf)).to.deep.equal([]);
    const operators = src.filter(({ path }) => path.startsWith('src/operator/'));
    expect(upwardImports(operators, operatorLayers, operatorRoomOf)).to.deep.equal([]);
    expect(upwardImports(src, [...layers].reverse(), roomOf)).not.to.deep.equal([]);
  });

  it('the client imports only its own files, and depends on no package', async () => {
    const folder = 'clients/typescript';
    const files = await sources(join(folder, 'src'));
    const imported = files.flatMap(({ path, text }) =>
      ts
        .preProcessFile(text, true, true)
        .importedFiles.map(({ fileName }) => (fileName.startsWith('.') ? join(dirname(path), fileName) : fileName)),
    );
    const paths = new Set(files.map(({ path }) => path));
    expect(imported.filter(name => !paths.has(name))).to.deep.equal([]);
    const { dependencies } = JSON.parse(await readFile(join(root, folder, 'package.json'), 'utf8'));
    expect(dependencies).to.equal(undefined);
  });

  it('no two source files have the same name', async () => {
    const folders = await Promise.all(['src', 'scripts', 'bench'].map(sources));
    const names = folders
      .flat()
      .map(({ path }) => basename(path))
      .filter(name => name !== 'index.ts');
    expect(names.filter((name, at) => names.indexOf(name) !== at)).to.deep.equal([]);
  });

  it('the HTTP layer imports nothing of a database', () => {
    for (const { path, code } of src.filter(file => roomOf(file.path) === 'http')) {
      expect(code, path).not.to.match(/mikro-orm|from 'pg'/);
    }
  });

  it('a migration imports nothing of the source code, which may change after it', () => {
    for (const file of migrations) {
      expect(
        importsOf(file).filter(path => path !== join(dirname(file.path), 'sql.ts')),
        file.path,
      ).to.deep.equal([]);
    }
  });

  it('every migration declares whether the build before it can go on', () => {
    const since: Record<string, string> = { control: '0014', tenant: '0015' };
    const declaring = migrations.filter(({ path }) => basename(path) >= (since[basename(dirname(path))] ?? ''));
    for (const { path, code } of declaring)
      if (/\/\d{4}-/.test(path)) expect(code, path).to.match(/static readonly compatible = (true|false);/);
  });

  it('every route declares who may call it', () => {
    const routes = apiRoutes({} as never);
    const open = routes.filter(({ access }) => !['user', ...permissions].includes(access)).map(({ path }) => path);
    expect(routes.length).to.be.greaterThan(8);
    for (const { method, path, access, summary } of routes) {
      expect(access, `${method} ${path}`).to.be.oneOf(['anonymous', 'optional', 'client', 'user', ...permissions]);
      expect(summary, `${method} ${path}`).to.match(/\S/);
    }
    for (const path of open) expect(path).to.match(/^\/api\/v1\/auth\/|^\/api\/Data\/GenerateToken$/);
    const keys = routes.map(({ method, path }) => `${method} ${path.replace(/:\w+/g, ':')}`);
    expect(new Set(keys).size).to.equal(keys.length);
  });

  it('the environment is read in one place only', () => {
    const readers = all.filter(({ code }) => /process\.env|node:process|import\.meta\.env/.test(code));
    expect(readers.map(({ path }) => path)).to.deep.equal(['src/config/process-environment.ts']);
  });

  it('no file path is taken from the pathname of a URL, so the project may lie in a folder of any name', () => {
    for (const { path, code } of all) expect(code, path).not.to.match(/import\.meta\.url\)\.pathname/);
  });

  it('the files of the resources contain no code about tenants', () => {
    const files = src.filter(({ path }) => /^src\/resources\/[^/]+$/.test(path) && path !== 'src/resources/index.ts');
    expect(files.length).to.be.greaterThan(0);
    for (const { path, text } of files) {
      const withoutPaths = text.replace(/from '\.\.\/tenancy\/[^']+'/g, '');
      expect(withoutPaths, path).not.to.match(/tenant/i);
    }
  });

  it('the source code has no any, and no suppression without a reason', () => {
    for (const { path, code, text } of all) {
      expect(code, path).not.to.match(/(?::|<|\bas|\||&|=>|,)\s*any\b\s*(?:[;,)>=\][|&{]|$)/m);
      expect(text, path).not.to.match(/@ts-(?:ignore|nocheck|expect-error)(?! \S)/);
      expect(text, path).not.to.match(/biome-ignore [\w/]+:?\s*$/m);
    }
  });

  it('no comment is wider than 120 columns', async () => {
    const folders = await Promise.all(['migrations', 'bench', 'deploy', 'test'].map(sources));
    for (const { path, text } of [...all, ...folders.flat()])
      expect(text, path).not.to.match(/^ *(?=\/?\*|\/\/).{121,}$/m);
  });

  it('no file contains a marker of unfinished work', async () => {
    const later = new RegExp(`\\b(${['TO' + 'DO', 'FIX' + 'ME', 'XX' + 'X', 'HA' + 'CK'].join('|')})\\b`);
    for (const { path, text } of [...all, ...(await sources('test'))]) expect(text, path).not.to.match(later);
  });

  it('the source code has no default export, no barrel file but the catalogue, and no module-level variable', () => {
    for (const { path, code } of src) {
      expect(code, path).not.to.match(/^export default/m);
      expect(code, path).not.to.match(/^export (\*|\{.*\} from)/m);
      expect(code, path).not.to.match(/^(export )?(let|var) /m);
    }
  });

  it('no two migrations of one database have the same number, so they run in the order of writing', async () => {
    for (const kind of ['control', 'tenant']) {
      const files = await readdir(join(root, 'migrations', kind));
      const names = files.filter(name => /^\d{4}-.*\.ts$/.test(name));
      const numbers = names.map(name => Number(name.slice(0, 4))).sort((a, b) => a - b);
      expect(numbers, kind).to.deep.equal(numbers.map((_, index) => index + 1));
      const pages = files.filter(name => name.endsWith('.sql')).map(name => name.replace(/sql$/, 'ts'));
      expect(names).to.include.members(pages);
    }
  });

  describe('packages', () => {
    interface Package {
      version: string;
      dependencies?: Record<string, string>;
      devDependencies?: Record<string, string>;
      optionalDependencies?: Record<string, string>;
    }
    let manifest: Package;
    let locked: Record<string, Package>;

    before(async () => {
      manifest = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'));
      locked = JSON.parse(await readFile(join(root, 'package-lock.json'), 'utf8')).packages;
    });

    it('every dependency is pinned to the exact version in the lockfile', () => {
      const { dependencies, devDependencies, optionalDependencies } = manifest;
      const named = { ...dependencies, ...devDependencies, ...optionalDependencies };
      expect(Object.keys(named).length).to.be.greaterThan(10);
      for (const [name, version] of Object.entries(named)) {
        expect(version, name).to.match(/^\d+\.\d+\.\d+(-[\w.]+)?$/);
        expect(locked[`node_modules/${name}`]?.version, name).to.equal(version);
      }
    });

    it('all packages of MikroORM have the same version', () => {
      const versions = Object.entries(locked)
        .filter(([path]) => /node_modules\/@mikro-orm\/[^/]+$/.test(path))
        .map(([, { version }]) => version);
      expect(versions.length).to.be.greaterThan(3);
      expect(new Set(versions).size).to.equal(1);
    });

    it('no dependency is older than the version that fixed its vulnerability', () => {
      const floors: Record<string, string> = {
        jws: '4.0.1',
        jsonwebtoken: '9.0.3',
        koa: '3.0.3',
        formidable: '3.5.4',
        'path-to-regexp': '8.0.0',
      };
      const mandatory = ['jws', 'jsonwebtoken', 'koa'];

      for (const [name, floor] of Object.entries(floors)) {
        const found = Object.entries(locked).filter(([path]) => path.endsWith(`node_modules/${name}`));
        if (mandatory.includes(name)) expect(found, name).not.to.deep.equal([]);

        for (const [path, { version }] of found) {
          expect(version.localeCompare(floor, 'en', { numeric: true }), `${path} ${version}`).to.be.at.least(0);
        }
      }
    });
  });
});
