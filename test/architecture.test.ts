import { readdir, readFile } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { apiRoutes } from '../src/app.ts';
import { permissions } from '../src/control/permissions.ts';

const root = fileURLToPath(new URL('..', import.meta.url));

/** A part of the project, and the parts that it may import. `src/<folder>/` is a part, and so is each file beside them. */
const leaves = ['config', 'errors', 'log'];
const mayImport: Record<string, string[]> = {
  'v8-flags': [],
  config: [],
  errors: [],
  log: [],
  postgres: [...leaves, 'http'],
  http: [...leaves, 'postgres'],
  control: ['http', 'postgres', ...leaves],
  connections: ['response-cache', 'control', 'http', 'postgres', ...leaves],
  'response-cache': ['connections', 'control', 'http', 'postgres', ...leaves],
  tenancy: ['response-cache', 'connections', 'control', 'http', 'postgres', ...leaves],
  resources: ['activity', 'audit', 'tenancy', 'connections', 'control', 'http', 'postgres', ...leaves],
  activity: ['resources', 'tenancy', 'control', 'http', 'postgres', ...leaves],
  audit: ['resources', 'tenancy', 'control', 'http', 'postgres', ...leaves],
  auth: ['resources', 'background-tasks', 'tenancy', 'control', 'http', 'postgres', ...leaves],
  'background-tasks': ['http', 'errors'],
  metrics: ['response-cache', 'connections', 'control', 'http'],
  embedded: ['config'],
  'operator-error': [],
  explain: ['operator-error', 'http', 'postgres', ...leaves],
  installation: ['embedded', 'control', 'http', 'postgres', ...leaves],
  operator: ['installation', 'operator-error', 'explain', 'auth', 'tenancy', 'control', 'http', 'postgres', ...leaves],
  docs: ['tenancy', 'http', ...leaves],
  // The document is made from the routes, also without a service.
  'docs/document': ['app', 'auth', 'docs', 'tenancy'],
  app: [
    'metrics',
    'auth',
    'resources',
    'activity',
    'audit',
    'docs',
    'background-tasks',
    'tenancy',
    'response-cache',
    'connections',
    'control',
    'http',
    ...leaves,
  ],
  server: [
    'app',
    'metrics',
    'auth',
    'resources',
    'background-tasks',
    'tenancy',
    'response-cache',
    'connections',
    'installation',
    'operator',
    'operator-error',
    'control',
    'http',
    ...leaves,
  ],
  main: ['server', 'installation', 'operator', 'operator-error', 'explain', 'auth', 'control', 'http', ...leaves],
  scripts: ['operator', 'docs'],
  // Both schemas and the two ways to them: for MikroORM's own command line as well.
  'mikro-orm.config': ['resources', 'tenancy', 'control', 'embedded', 'config'],
};

interface SourceFile {
  path: string;
  text: string;
  /** Without comments. */
  code: string;
}

async function sources(folder: string): Promise<SourceFile[]> {
  const entries = await readdir(join(root, folder), { recursive: true });
  const paths = entries.filter(entry => entry.endsWith('.ts')).map(entry => join(folder, entry));
  return Promise.all(
    paths.sort().map(async path => {
      const text = await readFile(join(root, path), 'utf8');
      const code = text.replace(/^\s*(\/\*[\s\S]*?\*\/|\/\/.*)$/gm, '').replace(/ \/\/ .*$/gm, '');
      return { path, text, code };
    }),
  );
}

/** `src/http/route.ts` → `http`, `src/app.ts` → `app`, `scripts/tenant.ts` → `scripts`. */
function partOf(path: string): string {
  const [first = '', ...rest] = path.replace(/^src\//, '').split('/');
  return rest.length > 0 ? first : first.replace(/\.ts$/, '');
}

/** `src/auth/passwords.ts` → `auth/passwords`: a single file that a rule names. */
function nameOf(path: string): string {
  return path.replace(/^src\//, '').replace(/\.ts$/, '');
}

/** The files of ours that a file imports, from the root of the project. */
function importsOf({ path, code }: SourceFile): string[] {
  const specifiers = [...code.matchAll(/\b(?:from|import)\s*\(?\s*'(\.[^']+)'/g)].map(match => match[1] ?? '');
  return specifiers.map(specifier => relative(root, join(root, dirname(path), specifier)));
}

describe('the architecture', () => {
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

  it('has imports in one direction only', () => {
    const wrong: string[] = [];
    for (const file of [...src, ...scripts, config]) {
      const part = partOf(file.path);
      expect(mayImport, `${file.path}: say in this test what ${part} may import`).to.have.property(part);
      for (const imported of importsOf(file)) {
        const allowed = mayImport[nameOf(file.path)] ?? [part, ...(mayImport[part] ?? [])];
        if (!allowed.includes(partOf(imported)) && !allowed.includes(nameOf(imported)))
          wrong.push(`${file.path} imports ${imported}`);
      }
    }
    expect(wrong).to.deep.equal([]);
  });

  it('has an HTTP layer that knows of no database', () => {
    for (const { path, code } of src.filter(file => partOf(file.path) === 'http')) {
      expect(code, path).not.to.match(/mikro-orm|from 'pg'/);
    }
  });

  it('has migrations that depend on nothing that changes', () => {
    for (const file of migrations) {
      expect(
        importsOf(file).filter(path => path !== join(dirname(file.path), 'sql.ts')),
        file.path,
      ).to.deep.equal([]);
    }
  });

  it('says of every route who may call it', () => {
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

  it('reads the environment in one place', () => {
    const readers = all.filter(({ code }) => /process\.env|node:process|import\.meta\.env/.test(code));
    expect(readers.map(({ path }) => path)).to.deep.equal(['src/config.ts']);
  });

  it('lies in a folder of any name: no path is cut out of a URL, in which a space is written otherwise', () => {
    for (const { path, code } of all) expect(code, path).not.to.match(/import\.meta\.url\)\.pathname/);
  });

  it('has resources that do not know of tenants', () => {
    const files = src.filter(
      ({ path }) => path.startsWith('src/resources/') && !/\/(resource|resource-options|index)\.ts$/.test(path),
    );
    expect(files.length).to.be.greaterThan(0);
    for (const { path, text } of files) {
      const withoutPaths = text.replace(/from '\.\.\/tenancy\/[^']+'/g, '');
      expect(withoutPaths, path).not.to.match(/tenant/i);
    }
  });

  it('has no any, and no suppression without a reason', () => {
    for (const { path, code, text } of all) {
      expect(code, path).not.to.match(/(?::|<|\bas|\||&|=>|,)\s*any\b\s*(?:[;,)>=\][|&{]|$)/m);
      expect(text, path).not.to.match(/@ts-(?:ignore|nocheck|expect-error)(?! \S)/);
      expect(text, path).not.to.match(/biome-ignore [\w/]+:?\s*$/m);
    }
  });

  it('has nothing that is left for later', async () => {
    const later = new RegExp(`\\b(${['TO' + 'DO', 'FIX' + 'ME', 'XX' + 'X', 'HA' + 'CK'].join('|')})\\b`);
    for (const { path, text } of [...all, ...(await sources('test'))]) expect(text, path).not.to.match(later);
  });

  it('has no default exports, no barrels but the catalogue, and no module-level variables', () => {
    for (const { path, code } of src) {
      expect(code, path).not.to.match(/^export default/m);
      expect(code, path).not.to.match(/^export (\*|\{.*\} from)/m);
      expect(code, path).not.to.match(/^(export )?(let|var) /m);
    }
  });

  describe('of its packages', () => {
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

    it('pins every version exactly, as the lockfile has it', () => {
      const { dependencies, devDependencies, optionalDependencies } = manifest;
      const named = { ...dependencies, ...devDependencies, ...optionalDependencies };
      expect(Object.keys(named).length).to.be.greaterThan(10);
      for (const [name, version] of Object.entries(named)) {
        expect(version, name).to.match(/^\d+\.\d+\.\d+(-[\w.]+)?$/);
        expect(locked[`node_modules/${name}`]?.version, name).to.equal(version);
      }
    });

    it('has MikroORM in one version', () => {
      const versions = Object.entries(locked)
        .filter(([path]) => /node_modules\/@mikro-orm\/[^/]+$/.test(path))
        .map(([, { version }]) => version);
      expect(versions.length).to.be.greaterThan(3);
      expect(new Set(versions).size).to.equal(1);
    });

    it('has none below the version that mended it', () => {
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
        for (const [path, { version }] of found)
          expect(version.localeCompare(floor, 'en', { numeric: true }), `${path} ${version}`).to.be.at.least(0);
      }
    });
  });
});
