import { randomBytes } from 'node:crypto';
import { expect } from 'chai';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { backupSettings } from '../../support/backup-settings.ts';
import type { Client } from '../../support/client.ts';
import {
  type DefaultLocale,
  languageLocales,
  localeC,
  setDefaultLocale,
} from '../../support/default-locale.ts';
import { makeNextBuild } from '../../support/next-build.ts';
import { createPlainServer } from '../../support/plain-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { makeServerFolder, removeServerFolder } from '../../support/server-folder.ts';
import { TwoServers } from '../../support/two-servers.ts';
import { use, useEach } from '../../support/use.ts';

/** Names in the order of their code points, which no language has. */
const names = [
  '10',
  '9',
  'Aruba',
  'Zebra',
  'a b',
  'ab',
  'apple',
  'ibis',
  'Åland',
  'İzmir',
  '￥',
  '😀',
];
/** Codes that are equal in some language, and not in Unicode. */
const codes = ['FI', 'Fı', 'STRASSE', 'straße'];

describe('moves between servers whose defaults order texts in another way', () => {
  const servers = use(() => TwoServers.start({ ACQUIRE_TIMEOUT_MS: '9000' }));
  const path = '/api/v1/OrderStatuses';
  let client: Client;

  before(async () => {
    client = await servers.world.login(servers.world.acme);
    for (const Name of names.toReversed()) {
      expect((await client.post(path, { Name })).status).to.equal(201);
    }
    for (const Code of codes) {
      const created = await client.post('/api/v1/TaxCodes', { Code, Name: Code, Rate: 1 });
      expect(created.status, Code).to.equal(201);
    }
  });

  /** Reads the first page, lets `between` happen, and reads the pages behind its link. */
  async function readPages(between: () => Promise<unknown>): Promise<string[]> {
    const read: string[] = [];
    let next: string | undefined = `${path}?sort=Name&limit=5`;

    while (next !== undefined) {
      const page = await client.get(next);
      expect(page.status).to.equal(200);
      read.push(...page.body.map(({ Name }: { Name: string }) => Name));
      next = /<([^>]+)>; rel="next"/.exec(page.headers.get('link') ?? '')?.[1];
      if (read.length === 5) await between();
    }

    return read;
  }

  async function expectOwnCodes(): Promise<void> {
    for (const code of codes) {
      const found = await client.get(`/api/v1/TaxCodes/code/${encodeURIComponent(code)}`);
      expect(found.body.Code, code).to.equal(code);
    }
    const taken = await client.post('/api/v1/TaxCodes', { Code: 'fi', Name: 'x', Rate: 1 });
    expect(taken.status).to.equal(400);
    expect(taken.body.code).to.equal('duplicate');
  }

  it('pages go on behind their link after a move to a server of any default and back, no record is left out, and codes are equal as before', async () => {
    for (const locale of [...(await languageLocales()).slice(1), localeC]) {
      await setDefaultLocale(servers.second.url, locale);
      const templates = await servers.namesOn('second', '.*_template_[0-9a-f]{12}');
      for (const template of templates) await dropDatabase(template);

      const there = await readPages(() => servers.move('acme', '--to', 'second'));
      await expectOwnCodes();
      const back = await readPages(() => servers.move('acme', '--back'));
      await expectOwnCodes();

      expect(there, locale.name).to.deep.equal(names);
      expect(back, locale.name).to.deep.equal(names);
    }
  });

  const dropDatabase = (name: string) => servers.onSecond(`drop database "${name}"`);
});

describe('a server whose default orders texts as a language does', () => {
  const server = useEach(() => createPlainServer('createdb createrole'));
  let environment: Record<string, string>;
  let locales: DefaultLocale[];

  beforeEach(async () => {
    locales = await languageLocales();
    environment = {
      DATABASE_URL: server.url('office'),
      MASTER_KEY: randomBytes(32).toString('base64'),
    };
    const [, turkish] = locales;
    if (turkish) await setDefaultLocale(server.superuserUrl('postgres'), turkish);
  });

  const run = (...args: string[]) => runCommand('scripts/backoffice.ts', args, environment);

  /** Runs a command of a build, which must succeed. */
  async function runWell(script: string, ...args: string[]): Promise<void> {
    const { code, stdout, stderr } = await runCommand(script, args, environment);
    expect(code, `${args.join(' ')}: ${stderr}${stdout}`).to.equal(0);
  }

  /** Returns the databases of the product in which texts have another order or lower case. */
  async function disordered(): Promise<string[]> {
    const rows = await server.sql<{ name: string }>(
      `select datname as name from pg_database
        where datname like 'office%' and (datlocprovider, datlocale) is distinct from ('b'::"char", 'C.UTF-8')`,
    );
    return rows.map(({ name }) => name);
  }

  it('control migrate refuses an empty control database that somebody has made in the order of a language, also in its plan, and the statements that it prints make one that it takes', async () => {
    const former = environment;

    for (const [number, { name, options }] of locales.entries()) {
      const database = `made${number}`;
      environment = { ...former, DATABASE_URL: server.url(database) };
      await server.sql(`create database ${database} owner operator template template0 ${options}`);

      const planned = await run('control', 'migrate', '--dry-run');
      const refused = await run('control', 'migrate');

      expect(planned.code, name).to.equal(1);
      expect(refused.code, name).to.equal(1);
      expect(planned.stderr).to.equal(refused.stderr);
      expect(refused.stderr).to.match(/^The control database cannot be used: database made\d /);
      const [, drop = '', create = ''] =
        /: (drop database [^;]+); (create database [^;]+);/.exec(refused.stderr) ?? [];
      await server.sql(drop);
      await server.sql(create);
      expect((await run('control', 'migrate')).code, name).to.equal(0);
    }

    environment = former;
  });

  it('control migrate takes an empty control database in the order C or C.UTF-8, and refuses one with tables of somebody else without a word of dropping it', async () => {
    const former = environment;
    const taken = {
      builtin: `locale_provider builtin builtin_locale 'C'`,
      libc: 'locale_provider libc',
    };
    for (const [provider, options] of Object.entries(taken)) {
      await server.sql(
        `create database ${provider}_c owner operator template template0 ${options} locale 'C' encoding 'UTF8'`,
      );
      environment = { ...former, DATABASE_URL: server.url(`${provider}_c`) };
      const { code, stderr } = await run('control', 'migrate');
      expect(code, stderr).to.equal(0);
    }

    await server.sql('create database theirs owner operator');
    environment = { ...former, DATABASE_URL: server.url('theirs') };
    await withConnection(server.superuserUrl('theirs'), client =>
      client.query('create table orders (id integer)'),
    );
    const { code, stderr } = await run('control', 'migrate');
    environment = former;

    expect(code).to.equal(1);
    expect(stderr).to.include('It has tables of somebody else').and.not.include('drop database');
  });

  it('every database that commands make orders texts by code point, and doctor names a database of a tenant and a control database in another order', async () => {
    expect((await run('control', 'migrate')).code).to.equal(0);
    expect((await run('server', 'set', 'default', '--disk-gb', '1000')).code).to.equal(0);
    for (const slug of ['acme', 'globex']) {
      const made = await run('provision', slug, '--name', slug, '--admin-email', `a@${slug}.test`);
      expect(made.code, made.stderr).to.equal(0);
    }
    expect((await run('clone', 'acme', 'copy')).code).to.equal(0);

    expect(await disordered()).to.deep.equal([]);
    const doctor = await run('doctor', '--json');
    expect(doctor.code, doctor.stdout).to.equal(0);

    const [row] = await server.sql<{ name: string }>(
      `select datname as name from pg_database where datname like 'office_tenant_%' order by 1 limit 1`,
    );
    for (const { name, catalog } of locales) {
      await server.sql(
        `update pg_database set ${catalog} where datname in ('${row?.name}', 'office')`,
      );
      const found = await run('doctor', '--json');

      expect(found.code, name).to.equal(1);
      const checks = JSON.parse(found.stdout).findings.map(
        ({ check, tenant }: Record<string, string>) => [check, tenant],
      );
      expect(checks, name).to.deep.equal([
        ['control_text_order', null],
        ['text_order_differs', 'acme'],
      ]);
    }
    await server.sql(
      `update pg_database set datlocprovider = 'b', datlocale = 'C.UTF-8', datcollate = 'C', datctype = 'C'
        where datname in ('${row?.name}', 'office')`,
    );
    expect((await run('doctor')).code).to.equal(0);
  });

  it('a database that the next build restores from an archive of this build orders texts by code point, too', async () => {
    const [folder, next] = [await makeServerFolder('archives'), await makeNextBuild()];
    const former = environment;
    environment = { ...former, ...(await backupSettings(folder)) };
    const script = next.file('scripts/backoffice.ts');

    for (const args of [
      ['control', 'migrate'],
      ['provision', 'acme', '--name', 'Acme', '--admin-email', 'a@acme.test'],
      ['backup', 'init'],
    ]) {
      await runWell('scripts/backoffice.ts', ...args);
    }
    await runWell('scripts/backoffice.ts', 'backup', 'run', 'acme');
    await runWell(script, 'migrate', '--all');
    await runWell(script, 'restore', 'acme', '--archive', 'latest');

    expect(await disordered()).to.deep.equal([]);
    environment = former;
    await next.remove();
    await removeServerFolder(folder);
  });
});
