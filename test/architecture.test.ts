import { existsSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import ts from 'typescript';
import { permissions } from '../src/control/permissions.ts';
import { apiRoutes } from '../src/service/routes.ts';

const root = fileURLToPath(new URL('..', import.meta.url));

/**
 * The folders of `src`, from top to bottom: a file imports from its own folder and from those
 * below it.
 */
const folders = ['service', 'operator', 'accounts', 'sales', 'tenancy', 'control', 'lib'];

/** The folders of `src/operator`, by the same rule. */
const operatorFolders = [
  'cli',
  'console',
  'doctor',
  'first-start',
  'lifecycle',
  'recovery',
  'servers',
  'backup',
  'databases',
  'schema',
  'credentials',
  'registry',
  'command',
];

/**
 * The files of the service's half that the operator's half may import, and why: each does, in a
 * command, what a request does too, so that both mean the same by it.
 */
const operatorDoors: Readonly<Record<string, string>> = {
  'accounts/auth/factors/factor-store.ts': 'a reset of an operator removes the same rows',
  'accounts/auth/new-password.ts': 'a password that a command sets obeys the same rules',
  'accounts/auth/passwords.ts': 'it is hashed in the same way',
  'accounts/auth/sessions.ts': 'a command ends the sessions that a request would end',
  'accounts/auth/set-user-disabled.ts': 'a user is disabled in one way',
  'accounts/people/change-managed-user.ts': 'a user is found and managed by one rule',
  'accounts/people/change-people.ts': 'changes of people wait for each other',
  'accounts/people/user-records.ts': 'a role and its scope are judged in one way',
  'accounts/people/user-statements.ts': 'a program that was added is read in one way',
  'accounts/programs/program-keys.ts': 'a key of a program is made and revoked in one way',
  'accounts/programs/program-records.ts': 'a program is added in one way',
  'accounts/programs/program-table.ts': 'the fields of a program are judged in one way',
  'sales/events/change-cursor.ts': 'a copied webhook keeps the later of two cursors',
  'sales/events/held-feeds.ts': 'doctor names who holds the feed as the feed sees it',
  'sales/imports/import-lock.ts': 'a change of the database waits for imports',
  'sales/usage/usage-sums.ts': 'the usage of a tenant is what its users see',
  'sales/webhooks/failing-webhook.ts': 'a failing webhook is what its users see',
  'sales/webhooks/webhook-queue.ts': 'a webhook that is opened again sends what it should',
  'sales/webhooks/webhook-secret.ts': 'secrets are sealed anew as they were sealed',
  'tenancy/connections/share.ts': 'commands leave the service its share of the connections',
  'tenancy/connections/tenant-identity.ts': 'doctor knows the cluster as a connection does',
};

/**
 * The files that cast what the compiler cannot prove, and why, beside `src/lib/seams`, whose
 * casts reach the private parts of packages.
 */
const forcedCasts: Readonly<Record<string, string>> = {
  'lib/postgres/connection.ts': 'a pool of pg passes its options to its clients, untyped',
  'lib/postgres/migration-steps.ts': 'a migration that only collects statements has no driver',
  'operator/backup/archive/open-archive.ts': 'the streams of tar-stream are those of streamx',
  'operator/backup/archive/write-archive.ts': 'the streams of tar-stream are those of streamx',
  'operator/command/operation.ts': 'the operations of all commands stand in one list',
  'operator/console/view.ts': 'the columns of all views stand in one list',
  'operator/registry/tenant-health.ts': 'a finding has the details of its check',
  'sales/imports/import-columns.ts': 'the fields of a contract are named by the file',
  'sales/resources/rest/resource-definition.ts': 'the resources of all entities stand in one list',
  'service/route-steps.ts': 'the routes of all contracts stand in one list',
  'tenancy/connections/tenant-transaction.ts': 'a pool of one connection lacks cursors',
};

/**
 * The files outside `src/operator` that say more of a value than the compiler knows, how often
 * they do, and why, beside `src/lib/seams`. Most values need none: a statement has the type of
 * its rows, `src/lib/narrow.ts` narrows what was thrown and what is a JSON object, and what
 * `JSON.parse` returns is named by the variable that gets it.
 */
const casts: Readonly<Record<string, readonly [count: number, reason: string]>> = {
  'accounts/mails/mail-transport.ts': [5, 'the types of nodemailer lack its plugins and signals'],
  'control/database.ts': [1, 'MikroORM passes the pool of a dialect untyped'],
  'lib/http/request/fields.ts': [1, 'a described shape has the fields of the shape'],
  'lib/http/request/read-body.ts': [1, 'the types of Node lack the source of a parsed number'],
  'lib/http/request/read-fields.ts': [1, 'a body is an object, whose members are read by name'],
  'lib/http/response/response-filter.ts': [1, 'a result is an object, whose fields are named'],
  'lib/http/server/routers.ts': [1, 'the router adds the parameters of a path to the context'],
  'lib/http/steps/rate-limit/redis-windows.ts': [5, 'ioredis types neither scripts nor overloads'],
  'lib/narrow.ts': [1, 'a constant record has no keys beside those of its type'],
  'lib/postgres/bound-connection.ts': [1, 'MikroORM allows named values, and sends none'],
  'lib/postgres/dead-connections.ts': [2, 'connecting a pool has an overload with a callback'],
  'lib/postgres/json-columns.ts': [1, 'the rows of a statement are those of its text'],
  'lib/postgres/retry-refused.ts': [2, 'connecting a pool has an overload with a callback'],
  'lib/postgres/scram-client.ts': [1, 'the clients of a pool are those of its configuration'],
  'lib/postgres/session-client.ts': [3, 'the types of pg lack an overload, a setting and null'],
  'sales/events/change-cursor.ts': [1, 'the pattern of a cursor has six numbers'],
  'sales/imports/import-columns.ts': [1, 'a JSON Schema is made, and read as one'],
  'sales/imports/import-routes.ts': [1, 'a report has lists that nobody changes'],
  'sales/resources/rest/read-routes.ts': [3, 'a query has the parameters that its resource has'],
  'sales/resources/rest/resource-definition.ts': [2, 'a definition does not carry its entity'],
  'service/metrics/worker-metrics.ts': [1, 'values of histograms have names'],
  'service/pages/code-samples.ts': [2, 'examples are texts'],
  'service/pages/openapi-document.ts': [2, 'a JSON Schema is made, and read as one'],
  'service/pages/openapi-responses.ts': [4, 'a JSON Schema is made, and read as one'],
  'service/pages/openapi-schemas.ts': [1, 'a JSON Schema is made, and read as one'],
  'service/pages/reference.ts': [2, 'the document of OpenAPI is made, and read as one'],
  'service/route-steps.ts': [1, 'the routes of all contracts stand in one list'],
  'service/routes.ts': [1, 'the documentation calls no handler, which needs services'],
  'service/workers/messages.ts': [1, 'the two sides of a channel are of one build'],
  'tenancy/connections/shared-reads.ts': [1, 'the reads of all statements wait in one list'],
  'tenancy/connections/tenant-transaction.ts': [1, 'the results are those of the queries'],
  'tenancy/request-context.ts': [1, 'the rows of a repeated change are stored as JSON'],
};

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

/**
 * Returns the imports that do not lead downwards. What is in no folder of `parent`, such as
 * `src/main.ts` and `scripts`, is above all of them.
 * @param parent the folder whose folders `order` names
 * @throws when a file is in a folder that `order` does not name
 */
function upwardImports(
  files: readonly SourceFile[],
  parent: string,
  order: readonly string[],
): string[] {
  const paths = new Set(files.map(({ path }) => path));

  const levelOf = (path: string): number => {
    const [folder = '', ...rest] = path.startsWith(parent)
      ? path.slice(parent.length).split('/')
      : [];
    if (rest.length === 0) return -1;

    const level = order.indexOf(folder);
    if (level < 0) {
      throw new Error(`${path}: give ${folder} a place in the order in test/architecture.test.ts`);
    }
    return level;
  };

  return files.flatMap(file =>
    importsOf(file)
      .filter(imported => paths.has(imported))
      .filter(imported => levelOf(imported) < levelOf(file.path))
      .map(imported => `${file.path} imports ${imported}`),
  );
}

/** Returns the migrations from the second one on that do not declare `compatible`. */
function undeclaredMigrations(files: readonly Pick<SourceFile, 'path' | 'code'>[]): string[] {
  return files
    .filter(({ path }) => /^\d{4}-/.test(basename(path)) && basename(path) >= '0002')
    .filter(({ code }) => !/static readonly compatible = (true|false);/.test(code))
    .map(({ path }) => path);
}

/** Returns for each folder the folders beside it from which its files import. */
function importsBetweenFolders(files: readonly SourceFile[]): Map<string, string[]> {
  const graph = new Map<string, string[]>();
  const arrows = files.flatMap(file =>
    importsOf(file).map((imported): [string, string] => [file.path, imported]),
  );

  for (const [from, to] of arrows) {
    const [ours, theirs] = [dirname(from).split('/'), dirname(to).split('/')];
    const shared = ours.findIndex((name, at) => name !== theirs[at]);
    const isBeside = shared >= 0 && shared < theirs.length;
    if (!isBeside) continue;

    const [folder, other] = [ours, theirs].map(names => names.slice(0, shared + 1).join('/')) as [
      string,
      string,
    ];
    graph.set(folder, [...(graph.get(folder) ?? []), other]);
  }
  return graph;
}

/**
 * The files of ours that a file imports, types included, as paths from the root of the project.
 */
function importsOf({ path, text }: SourceFile): string[] {
  return ts
    .preProcessFile(text, true, true)
    .importedFiles.filter(({ fileName }) => fileName.startsWith('.'))
    .map(({ fileName }) => join(dirname(path), fileName));
}

/**
 * The first cycle that a depth-first search meets, as the path through it; undefined when there
 * is none.
 */
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

/**
 * Returns the places of bodies without braces on a line of their own, which the linter cannot
 * tell from `if (!tenant) return undefined;`, and those of spread literals, which only pack
 * lines.
 */
function bareBodies({ path, text }: SourceFile): string[] {
  const tree = ts.createSourceFile(path, text, ts.ScriptTarget.Latest, true);
  const lineOf = (position: number): number =>
    tree.getLineAndCharacterOfPosition(position).line + 1;
  const found: string[] = [];

  const isApart = (statement: ts.Node, body: ts.Statement): boolean =>
    !ts.isBlock(body) && lineOf(body.getStart(tree)) !== lineOf(statement.getStart(tree));

  const visit = (node: ts.Node): void => {
    const bodies = ts.isIfStatement(node)
      ? [node.thenStatement]
      : ts.isIterationStatement(node, false)
        ? [node.statement]
        : [];
    const isSpread = ts.isSpreadAssignment(node) || ts.isSpreadElement(node);
    const isPacked =
      isSpread &&
      (ts.isObjectLiteralExpression(node.expression) ||
        ts.isArrayLiteralExpression(node.expression));

    if (isPacked || bodies.some(body => isApart(node, body))) {
      found.push(`${path}:${lineOf(node.getStart(tree))}`);
    }
    ts.forEachChild(node, visit);
  };
  visit(tree);

  return found;
}

/**
 * Returns the number of casts, without `as const`, and without those that `forcedCasts` names.
 */
function countCasts({ path, text }: SourceFile): number {
  const tree = ts.createSourceFile(path, text, ts.ScriptTarget.Latest, true);
  let count = 0;

  const visit = (node: ts.Node): void => {
    if (
      ts.isAsExpression(node) &&
      !/^(?:const|never|unknown)$/.test(node.type.getText(tree)) &&
      !ts.isAsExpression(node.expression)
    ) {
      count++;
    }
    ts.forEachChild(node, visit);
  };
  visit(tree);

  return count;
}

/**
 * An item of a list after the end of a sentence: a number (`2.`), a named invariant (`I2.`,
 * `I2:`, `I2 (name)`, or `I2` at the end of a line), or a bullet.
 */
const itemInText = /[.:;!?)] (?:\d{1,2}\.(?= |$)|[A-Z]\d+(?:[.:](?= |$)| \(|$)|- )/;

/** Returns the lines of comments in which an item of a list follows other text. */
function itemsInText({ path, text }: SourceFile): string[] {
  return text.split('\n').flatMap((line, index) => {
    const [, comment] = /^ *(?:\/?\*+|\/\/) *(?:\d+\. )?(.*)/.exec(line) ?? [];
    if (comment === undefined || !itemInText.test(comment)) return [];

    return [`${path}:${index + 1}: ${comment}`];
  });
}

describe('architecture', () => {
  let src: SourceFile[];
  let migrations: SourceFile[];
  let scripts: SourceFile[];
  let config: SourceFile;
  let all: SourceFile[];

  before(async () => {
    [src, migrations, scripts] = await Promise.all([
      sources('src'),
      sources('migrations'),
      sources('scripts'),
    ]);
    const text = await readFile(join(root, 'mikro-orm.config.ts'), 'utf8');
    config = { path: 'mikro-orm.config.ts', text, code: text };
    all = [...src, ...migrations, ...scripts, config];
    expect(src.length).to.be.greaterThan(40);
  });

  it('no imports form a cycle, type imports included, in the benches and the tests too', async () => {
    const others = (await Promise.all(['bench', 'deploy', 'test'].map(sources))).flat();
    const files = [...src, ...scripts, ...others, config];
    const graph = new Map(files.map(file => [file.path, importsOf(file)]));
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

  it('src has main.ts and the seven folders, and src/operator its thirteen', async () => {
    expect((await readdir(join(root, 'src'))).sort()).to.deep.equal([...folders, 'main.ts'].sort());
    expect((await readdir(join(root, 'src/operator'))).sort()).to.deep.equal(
      [...operatorFolders, 'ARCHITECTURE.md', 'README.md'].sort(),
    );
  });

  it('every folder imports only from the folders below it', () => {
    const operators = src.filter(({ path }) => path.startsWith('src/operator/'));

    expect(upwardImports([...src, ...scripts, config], 'src/', folders)).to.deep.equal([]);
    expect(upwardImports(operators, 'src/operator/', operatorFolders)).to.deep.equal([]);
    expect(upwardImports(src, 'src/', [...folders].reverse())).not.to.deep.equal([]);
  });

  it('the service imports nothing of the operator, who imports only named files of its half', () => {
    const importsFrom = (half: string, of: string): string[] =>
      src
        .filter(({ path }) => path.startsWith(`src/${half}/`))
        .flatMap(importsOf)
        .filter(imported => imported.startsWith(`src/${of}/`))
        .map(imported => imported.slice('src/'.length));

    for (const half of ['service', 'accounts', 'sales', 'tenancy']) {
      expect(importsFrom(half, 'operator'), half).to.deep.equal([]);
    }
    expect(importsFrom('operator', 'service')).to.deep.equal([]);
    const doors = ['accounts', 'sales', 'tenancy'].flatMap(half => importsFrom('operator', half));
    expect([...new Set(doors)].sort()).to.deep.equal(Object.keys(operatorDoors));
  });

  it('no two folders that stand side by side import from each other, directly or through others', () => {
    expect(findCycle(importsBetweenFolders(src))?.join(' → ')).to.equal(undefined);
  });

  it('no folder of src has the name of another one, or of one at the top of the project', async () => {
    const tops = (await readdir(root, { withFileTypes: true })).filter(entry =>
      entry.isDirectory(),
    );
    const entries = await readdir(join(root, 'src'), { withFileTypes: true, recursive: true });
    const names = [...tops, ...entries.filter(entry => entry.isDirectory())].map(
      ({ name }) => name,
    );

    expect(names.filter((name, at) => names.indexOf(name) !== at)).to.deep.equal([]);
  });

  it('every folder of src begins with a README, and each file that it names is there', async () => {
    const entries = await readdir(join(root, 'src'), { withFileTypes: true, recursive: true });
    const inner = entries
      .filter(entry => entry.isDirectory())
      .map(({ parentPath, name }) => join(parentPath, name));

    for (const folder of inner) {
      const text = await readFile(join(folder, 'README.md'), 'utf8');
      const named = [...text.matchAll(/`([\w./-]+\.(?:ts|js|css))`/g)].map(([, path = '']) => path);
      const missing = named.filter(
        path => !existsSync(join(folder, path)) && !existsSync(join(root, path)),
      );

      expect(text, folder).to.match(/^# .+\n\n/);
      expect(missing, folder).to.deep.equal([]);
    }
  });

  it('the client imports only its own files, and depends on no package', async () => {
    const folder = 'clients/typescript';
    const files = await sources(join(folder, 'src'));
    const imported = files.flatMap(({ path, text }) =>
      ts
        .preProcessFile(text, true, true)
        .importedFiles.map(({ fileName }) =>
          fileName.startsWith('.') ? join(dirname(path), fileName) : fileName,
        ),
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

  it('an exported name stands once in src, unless both files mean the same by it', () => {
    // The operations of a command's file, and a field that is true or false.
    const sameMeaning = ['flag', 'operations'];

    const names = src.flatMap(({ code }) => {
      const found = code.matchAll(
        /^export (?:async )?(?:function\*?|class|const|interface|type) (\w+)/gm,
      );
      return [...new Set([...found].map(([, name = '']) => name))];
    });

    const unshared = names.filter(name => !sameMeaning.includes(name));
    expect(unshared.filter((name, at) => unshared.indexOf(name) !== at)).to.deep.equal([]);
  });

  it('the HTTP layer imports nothing of a database', () => {
    for (const { path, code } of src.filter(file => file.path.startsWith('src/lib/http/'))) {
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

  it('every migration after the first schema declares whether the build before it can go on', () => {
    const path = 'migrations/tenant/0002-labels.ts';

    expect(undeclaredMigrations(migrations)).to.deep.equal([]);
    expect(
      undeclaredMigrations([{ path, code: 'export class Labels extends Migration {' }]),
    ).to.deep.equal([path]);
  });

  it('every route declares who may call it', () => {
    const routes = apiRoutes({} as never);
    const open = routes
      .filter(({ access }) => !['user', ...permissions].includes(access))
      .map(({ path }) => path);

    expect(routes.length).to.be.greaterThan(8);
    for (const { method, path, access, summary } of routes) {
      expect(access, `${method} ${path}`).to.be.oneOf([
        'anonymous',
        'optional',
        'client',
        'user',
        ...permissions,
      ]);
      expect(summary, `${method} ${path}`).to.match(/\S/);
    }

    for (const path of open) {
      expect(path).to.match(/^\/api\/v1\/auth\/|^\/api\/Data\/GenerateToken$/);
    }

    const keys = routes.map(({ method, path }) => `${method} ${path.replace(/:\w+/g, ':')}`);
    expect(new Set(keys).size).to.equal(keys.length);
  });

  it('the environment is read in one place only', () => {
    const readers = all.filter(({ code }) =>
      /process\.env|node:process|import\.meta\.env/.test(code),
    );
    expect(readers.map(({ path }) => path)).to.deep.equal([
      'src/lib/config/process-environment.ts',
    ]);
  });

  it('no file path is taken from the pathname of a URL, so the project may lie in a folder of any name', () => {
    for (const { path, code } of all) {
      expect(code, path).not.to.match(/import\.meta\.url\)\.pathname/);
    }
  });

  it('the files of the resources contain no code about tenants', () => {
    const files = src.filter(
      ({ path }) =>
        /^src\/sales\/resources\/[^/]+$/.test(path) && path !== 'src/sales/resources/index.ts',
    );
    expect(files.length).to.be.greaterThan(0);
    for (const { path, text } of files) {
      const withoutPaths = text.replace(/from '\.\.\/\.\.\/tenancy\/[^']+'/g, '');
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

  it('a cast that the compiler would refuse stands in a seam, or in a file that is named with its reason', () => {
    const casting = src
      .filter(({ path }) => !path.startsWith('src/lib/seams/'))
      .filter(({ code }) => /\bas (?:unknown as|never)\b/.test(code))
      .map(({ path }) => path.slice('src/'.length));

    expect(casting.sort()).to.deep.equal(Object.keys(forcedCasts).sort());
  });

  it('a cast stands outside src/operator only in files that are named with their number of casts and the reason', () => {
    const counted = src
      .filter(({ path }) => !/^src\/(?:operator|lib\/seams)\//.test(path))
      .map(file => [file.path.slice('src/'.length), countCasts(file)] as const)
      .filter(([, count]) => count > 0);
    const named = Object.entries(casts).map(([path, [count]]) => [path, count]);

    const text = 'const a = b as A; const c = [1] as const; const d = e as unknown as D;';
    expect(countCasts({ path: 'a.ts', text, code: text })).to.equal(1);
    expect(counted).to.deep.equal(named);
  });

  it('no file but a seam uses a private part of a package', () => {
    const parts =
      /(?:\.|\{ )_[a-z]\w+|\b(?:createContext|handleRequest|ratelimiter|REGISTRY|saslSession|connectionParameters)\b|\bconnection\.stream\b|[rR]edis\.stream\b/;
    const users = src.filter(({ code }) => parts.test(code)).map(({ path }) => path);

    expect(users).to.have.length.greaterThan(5);
    expect(users.filter(path => !path.startsWith('src/lib/seams/'))).to.deep.equal([]);
  });

  it('the state of a request is typed: the steps of its way use no context of Koa itself', () => {
    const untyped = all
      .filter(({ code }) =>
        /import [^;]*\b(?:Context|Middleware)\b(?! as)[^;]* from 'koa';/.test(code),
      )
      .map(({ path }) => path);
    // it sends what any app of Koa has made
    expect(untyped).to.deep.equal(['src/lib/seams/request-listener.ts']);
  });

  it('no comment is wider than 96 columns', async () => {
    const folders = await Promise.all(['migrations', 'bench', 'deploy', 'test'].map(sources));
    for (const { path, text } of [...all, ...folders.flat()]) {
      expect(text, path).not.to.match(/^ *(?=\/?\*|\/\/).{97,}$/m);
    }
  });

  it('each item of a list in a comment begins a line', async () => {
    const folders = ['bench', 'clients', 'deploy', 'docs', 'test'];
    const others = await Promise.all(folders.map(sources));
    const files = [...all, ...others.flat()];

    expect(files.flatMap(itemsInText).join('\n')).to.equal('');
  });

  it('a body that stands on a line of its own has braces, and no literal is spread', async () => {
    const others = await Promise.all(['bench', 'deploy', 'docs', 'test'].map(sources));

    expect([...all, ...others.flat()].flatMap(file => bareBodies(file))).to.deep.equal([]);
  });

  it('no file contains a marker of unfinished work', async () => {
    const later = new RegExp(
      `\\b(${['TO' + 'DO', 'FIX' + 'ME', 'XX' + 'X', 'HA' + 'CK'].join('|')})\\b`,
    );
    for (const { path, text } of [...all, ...(await sources('test'))]) {
      expect(text, path).not.to.match(later);
    }
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

      const pages = files
        .filter(name => name.endsWith('.sql'))
        .map(name => name.replace(/sql$/, 'ts'));
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
      for (const [name, wanted] of Object.entries(named)) {
        // A second version of a package has another name: `npm:<package>@<version>`.
        const version = String(wanted).replace(/^npm:[^@]+@/, '');
        expect(version, name).to.match(/^\d+\.\d+\.\d+(-[\w.]+)?$/);
        expect(locked[`node_modules/${name}`]?.version, name).to.equal(version);
      }
    });

    it('every action of the workflow is pinned to a commit, and may only read the repository', async () => {
      const workflow = await readFile(join(root, '.github/workflows/ci.yaml'), 'utf8');
      const used = workflow.split('\n').filter(line => line.includes('uses:'));
      expect(used).to.have.length.greaterThan(1);
      for (const line of used) {
        expect(line).to.match(/uses: [\w-]+\/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$/);
      }
      expect(workflow.match(/^ *permissions:\n.*/gm)).to.deep.equal([
        'permissions:\n  contents: read',
      ]);
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
        const found = Object.entries(locked).filter(([path]) =>
          path.endsWith(`node_modules/${name}`),
        );
        if (mandatory.includes(name)) expect(found, name).not.to.deep.equal([]);

        for (const [path, { version }] of found) {
          expect(
            version.localeCompare(floor, 'en', { numeric: true }),
            `${path} ${version}`,
          ).to.be.at.least(0);
        }
      }
    });
  });
});
