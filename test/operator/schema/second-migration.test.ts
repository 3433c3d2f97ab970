import { readFile, writeFile } from 'node:fs/promises';
import { expect } from 'chai';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { sqlState } from '../../../src/lib/postgres/database-error.ts';
import { quoteIdentifier } from '../../../src/lib/postgres/quote.ts';
import { schemaObjects } from '../../../src/lib/postgres/schema-fingerprint.ts';
import { makeNextBuild, type NextBuild } from '../../support/next-build.ts';
import { runCommand } from '../../support/run-command.ts';
import { incompatibleChanges } from '../../support/schema-changes.ts';
import { useEach } from '../../support/use.ts';
import { controlSql, createWorld, sql, type TestTenant } from '../../support/world.ts';

const [tenantExample = '', controlExample = ''] = await examples();

describe('the second migration, as migrations/README.md shows it', () => {
  const world = useEach(() => createWorld());
  let next: NextBuild;

  before(async () => {
    next = await makeNextBuild(tenantExample);
    await writeFile(next.file('migrations/control/9999-tenant-notes.ts'), controlExample);
  });
  after(() => next.remove());

  const run = (script: 'control' | 'tenant', ...args: string[]) =>
    runCommand(next.file(`scripts/${script}.ts`), args, world.environment);

  /** Migrates the control database and all tenants. */
  async function migrate(): Promise<void> {
    for (const [script, ...args] of [
      ['control', 'migrate'],
      ['tenant', 'migrate', '--all', '--canary', '1'],
    ] as const) {
      const { code, stderr } = await run(script, ...args);
      expect(stderr).to.equal('');
      expect(code).to.equal(0);
    }
  }

  /**
   * Runs statements of one transaction as the login with which the service connects to a
   * tenant.
   */
  async function asService(tenant: TestTenant, ...statements: string[]): Promise<unknown> {
    return withConnection(tenant.adminUrl, async client => {
      await client.query('begin');
      await client.query(`set local role ${quoteIdentifier(tenant.database)}`);
      for (const statement of statements) await client.query(statement);
      await client.query('commit');
      return undefined;
    }).catch(error => sqlState(error));
  }

  const schemaOf = (url: string) => withConnection(url, schemaObjects);

  it('the control migration adds its column, and takes nothing from the build before', async () => {
    const before = await schemaOf(world.installation.controlUrl);
    const { code, stdout } = await run('control', 'migrate');

    expect(stdout).to.equal('Applied 9999-tenant-notes.\n');
    expect(code).to.equal(0);
    expect(
      incompatibleChanges(before, await schemaOf(world.installation.controlUrl)),
    ).to.deep.equal([]);
    const [row] = await controlSql(world, `select note from tenants where slug = 'acme'`);
    expect(row).to.deep.equal({ note: null });
  });

  it('a running service serves the tenants before and after the tenant migration, which takes nothing from it', async () => {
    const before = await schemaOf(world.acme.adminUrl);

    await migrate();

    expect(incompatibleChanges(before, await schemaOf(world.acme.adminUrl))).to.deep.equal([]);
    const client = await world.login(world.acme);
    expect(
      (await client.get('/api/v1/EntityStatus', { 'Cache-Control': 'no-cache' })).status,
    ).to.equal(200);
  });

  it('the service may change the rows of the table, and each change is audited', async () => {
    await migrate();
    const insert = `insert into brands (code, name) values ('acme', 'Acme')`;
    expect(await asService(world.acme, insert, `update brands set name = 'ACME'`)).to.equal(
      undefined,
    );

    const entries = await sql(
      world.acme,
      `select action, after ->> 'name' as name from audit_log where resource = 'Brand' order by id`,
    );
    expect(entries).to.deep.equal([
      { action: 'create', name: 'Acme' },
      { action: 'update', name: 'ACME' },
    ]);
  });

  it('a code is refused if another row has it in another case', async () => {
    await migrate();
    const insert = (code: string) => `insert into brands (code, name) values ('${code}', 'Acme')`;
    expect(await asService(world.acme, insert('acme'))).to.equal(undefined);

    expect(await asService(world.acme, insert('ACME'))).to.equal('23505');
  });

  it('more rows than the limit are refused', async () => {
    await migrate();
    const insert = `insert into brands (code, name) select n, 'brand' from generate_series(1, 10001) n`;
    expect(await asService(world.globex, insert)).to.equal('SB001');
  });

  it('a rollback of the tenant migration lets the build before it serve the tenant', async () => {
    await migrate();
    const { code, stdout } = await run(
      'tenant',
      'rollback',
      'globex',
      '--yes',
      '--despite-running',
    );

    expect(stdout).to.equal(`globex: ${next.head} → ${next.currentHead}\n`);
    expect(code).to.equal(0);

    const client = await world.login(world.globex);
    expect(
      (await client.get('/api/v1/EntityStatus', { 'Cache-Control': 'no-cache' })).status,
    ).to.equal(200);
  });
});

/** Returns the code of the two examples. */
async function examples(): Promise<string[]> {
  const text = await readFile(new URL('../../../migrations/README.md', import.meta.url), 'utf8');
  return [...text.matchAll(/```ts\n(.*?)```/gs)].map(([, code = '']) => code);
}
