import { readFile, writeFile } from 'node:fs/promises';
import { expect } from 'chai';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import {
  findForeignPage,
  type MigrationFolder,
  migrationNames,
  pageDigests,
} from '../../../src/lib/postgres/migration-names.ts';
import { loadMigrations, runMigrations } from '../../../src/lib/postgres/migration-steps.ts';
import { migrationSettings } from '../../../src/operator/schema/template.ts';
import { makeNextBuild } from '../../support/next-build.ts';
import { runCommand } from '../../support/run-command.ts';
import { useScratchDatabases } from '../../support/scratch-databases.ts';
import { server } from '../../support/test-server.ts';
import { controlSql, sql, useWorld } from '../../support/world.ts';

const folders: MigrationFolder[] = ['control', 'tenant'];
const first = '0001-first-schema';

describe('first schema', () => {
  const createScratch = useScratchDatabases();

  for (const folder of folders) {
    it(`each table of the ${folder} database has a comment that says what a row is`, async () => {
      const url = await createScratch();
      await runMigrations(
        url,
        await loadMigrations(folder),
        folder === 'tenant' ? migrationSettings(server) : {},
      );

      const { rows } = await withConnection(url, client =>
        client.query(
          `select relname as name from pg_class
            where relnamespace = 'public'::regnamespace and relkind = 'r' and obj_description(oid, 'pg_class') is null`,
        ),
      );

      expect(rows).to.deep.equal([]);
    });

    it(`a ${folder} database stores the digest of the page beside its version`, async () => {
      const url = await createScratch();
      await runMigrations(
        url,
        await loadMigrations(folder),
        folder === 'tenant' ? migrationSettings(server) : {},
      );

      const { rows } = await withConnection(url, client =>
        client.query('select name, digest from migrations'),
      );

      const digests = await pageDigests(folder);
      const expected = (await migrationNames(folder)).map(name => ({
        name,
        digest: digests.get(name) ?? null,
      }));

      expect(rows).to.have.deep.members(expected);
      expect(digests.get(first)).to.match(/^[0-9a-f]{64}$/);
    });
  }

  it('a page has the same digest when git has checked it out with CRLF', async () => {
    const next = await makeNextBuild();
    const page = next.file(`migrations/tenant/${first}.sql`);
    await writeFile(page, (await readFile(page, 'utf8')).replaceAll('\n', '\r\n'));
    const { pageDigests: digestsOfNext } = await import(
      next.file('src/lib/postgres/migration-names.ts')
    );
    expect((await digestsOfNext('tenant')).get(first)).to.equal(
      (await pageDigests('tenant')).get(first),
    );
    await next.remove();
  });

  it('a database is foreign if it has another text of a page, or not the first one', async () => {
    const digests = Object.fromEntries(await pageDigests('tenant'));
    expect(await findForeignPage('tenant', null)).to.equal(undefined);
    expect(await findForeignPage('tenant', digests)).to.equal(undefined);
    expect(await findForeignPage('tenant', { ...digests, '9999-later': null })).to.equal(undefined);
    expect(await findForeignPage('tenant', { ...digests, [first]: 'other' })).to.equal(first);
    expect(
      await findForeignPage('tenant', { '0001-foundation': null, '0030-feed-timeline': null }),
    ).to.equal(first);
  });
});

describe('databases of a build that was not released', () => {
  const world = useWorld();
  const run = (script: 'control' | 'tenant', ...args: string[]) =>
    runCommand(`scripts/${script}.ts`, args, world.environment);
  const foreign = `update migrations set digest = 'other' where name = '${first}'`;
  const digestOf = async (folder: MigrationFolder) => (await pageDigests(folder)).get(first);

  it('a configured control database with another first schema is refused, and control migrate changes nothing', async () => {
    await controlSql(world, foreign);

    const commands = [
      run('control', 'migrate'),
      run('control', 'migrate', '--dry-run'),
      run('tenant', 'list'),
    ];

    for (const { code, stdout, stderr } of await Promise.all(commands)) {
      expect(stdout).to.equal('');
      expect(stderr).to.equal(
        `The control database is of no released build: its ${first} is not that of this build, and no migration ` +
          'leads from it here. Use the build that made it, or another database.\n',
      );
      expect(code).to.equal(1);
    }

    await controlSql(
      world,
      `update migrations set digest = '${await digestOf('control')}' where name = '${first}'`,
    );
  });

  it('a tenant database with another first schema is refused by migrate, and other tenants are migrated', async () => {
    await sql(world.acme, foreign);
    await controlSql(world, 'update tenants set schema_fingerprint = null');
    const { code, stdout } = await run('tenant', 'migrate', '--all', '--json');
    const lines = stdout.split('\n').filter(line => line.startsWith('{"slug"'));
    const outcomes = new Map(
      lines.map(line => JSON.parse(line)).map(outcome => [outcome.slug, outcome]),
    );

    expect(outcomes.get('acme').error).to.match(
      /^its database is of no released build: its 0001-first-schema is not/,
    );
    expect(outcomes.get('globex').state).to.equal('current');
    expect(code).to.equal(1);
    await sql(
      world.acme,
      `update migrations set digest = '${await digestOf('tenant')}' where name = '${first}'`,
    );
    expect((await run('tenant', 'migrate', '--all')).code).to.equal(0);
  });

  it('rollback of the first schema is refused with what to do instead, also by its plan', async () => {
    for (const options of [['--yes'], ['--dry-run']]) {
      const { code, stderr } = await run(
        'tenant',
        'rollback',
        'acme',
        '--despite-running',
        ...options,
      );

      expect(stderr).to.equal(
        'acme was not rolled back: The first schema is not undone, because that would remove all data of the tenant. ' +
          'To remove the tenant: bin/backoffice delete acme, then bin/backoffice purge acme\n',
      );
      expect(code).to.equal(1);
    }

    expect((await (await world.login(world.acme)).get('/api/v1/EntityStatus')).status).to.equal(
      200,
    );
  });
});
