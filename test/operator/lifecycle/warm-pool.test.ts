import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import pg from 'pg';
import { listPool } from '../../../src/operator/databases/warm-pool.ts';
import { provision } from '../../../src/operator/lifecycle/provision.ts';
import { purgeTenant } from '../../../src/operator/lifecycle/purge-tenant.ts';
import { lockKey, lockSpaces } from '../../../src/postgres/advisory-locks.ts';
import type { ScriptResult } from '../../support/command-line.ts';
import { createDedicatedServer, manifestOf } from '../../support/dedicated-server.ts';
import { jsonLines } from '../../support/json-lines.ts';
import { createQuickPasswords } from '../../support/quick-passwords.ts';
import { runCommand } from '../../support/run-command.ts';
import { use } from '../../support/use.ts';
import { poolChecks } from './warm-pool-checks.ts';

// A drill kills provisions and fills.
describe('warm pool', () => {
  const server = use(createDedicatedServer);
  const passwords = createQuickPasswords();

  const runTenant = (...args: string[]): Promise<ScriptResult> =>
    runCommand('scripts/tenant.ts', args, server.environment);
  const { fill, poolLines, findings, expectNoOrphan } = poolChecks(() => server);

  it('pool fill fills the pool, pool list prints it, and another fill of the same size changes nothing', async () => {
    const { code, stdout, stderr } = await runTenant('pool', 'fill', '--size', '2', '--json');
    expect({ code, stderr }).to.deep.equal({ code: 0, stderr: '' });
    expect(JSON.parse(stdout)).to.deep.equal([{ server: 'default', ready: 2, made: 2, dropped: 0, error: null }]);
    expect(await fill(2)).to.include({ ready: 2, made: 0, dropped: 0 });
    const list = JSON.parse((await runTenant('pool', 'list', '--json')).stdout);
    expect(list).to.have.length(2);
    expect(list[0]).to.include({ server: 'default', state: 'ready' });
    expect((await runTenant('pool', 'fill', '--size', '0')).code).to.equal(2);
  });

  it('a warm database accepts no connection, and its role cannot log in', async () => {
    const [{ database = '' } = {}] = await listPool(server.installation);
    const url = new URL(server.url);
    url.pathname = `/${database}`;
    const client = new pg.Client({ connectionString: url.href });
    expect(
      await client.connect().then(
        () => 'open',
        error => error.code,
      ),
    ).to.equal('55000');
    const [role] = await server.sql<object>(
      `select rolcanlogin, rolpassword from pg_authid where rolname = '${database}'`,
    );
    expect(role).to.deep.equal({ rolcanlogin: false, rolpassword: null });
  });

  it('a new tenant gets a warm database, which keeps its name, with its own guid and roles only', async () => {
    const [first = ''] = await poolLines();
    const { tenant: acme } = await server.provision('acme');
    expect(first)
      .to.match(/^office_tenant_\d+ ready$/)
      .and.to.equal(`${acme.databaseName} ready`);
    expect(acme.roleName).to.equal(acme.databaseName);
    expect(await poolLines()).to.have.length(1);
    expect(await server.sql('select guid from tenant_identity', acme.databaseName)).to.deep.equal([
      { guid: acme.guid },
    ]);
    expect(await server.sql('select title from entity_statuses', acme.databaseName)).to.have.length(3);
  });

  it('with an empty pool, a tenant is provisioned without it', async () => {
    await server.provision('globex');
    expect(await poolLines()).to.deep.equal([]);
    const { tenant: initech } = await server.provision('initech');
    expect(initech.databaseName).to.match(/^office_tenant_\d+$/);
  });

  it('a warm database of other migrations is never used for a tenant, and the next fill drops it', async () => {
    await fill(1);
    await server.control(`update tenant_databases set digest = 'another' where tenant_id is null`);
    expect(await poolLines()).to.match(/outdated/);
    await server.provision('hooli');
    expect(await poolLines()).to.match(/outdated/);
    expect(await fill(1)).to.include({ ready: 1, made: 1, dropped: 1 });
  });

  it('warm databases that were dropped by hand are skipped, and tenants are still provisioned', async () => {
    await fill(2);
    const [first, second] = await listPool(server.installation);
    await server.sql(`drop database "${first?.database}"`);
    await server.sql(`update pg_database set datconnlimit = -2 where datname = '${second?.database}'`);
    expect(await findings()).to.deep.equal([
      ['missing_database', null],
      ['missing_database', null],
    ]);
    await server.provision('umbrella');
    await server.provision('vandelay');
    await expectNoOrphan();
  });

  it('a warm database that a purged tenant had claimed is never given to another tenant', async () => {
    await fill(1);
    const ended = provision(server.installation, passwords, manifestOf('soylent'), async () => {
      throw new Error('the run ends here');
    });
    expect(await ended.catch(error => error.message)).to.equal('the run ends here');
    expect(await poolLines()).to.deep.equal([]);
    await purgeTenant(server.installation, 'soylent');
    expect(await fill(1)).to.include({ ready: 1, made: 1 });
    await expectNoOrphan();
  });

  it('pool fill and doctor --fix drop the templates of other builds, except a locked one', async () => {
    const templates = async () =>
      (
        await server.sql<{ name: string }>(
          `select datname as name from pg_database where datname ~ '^office_template_'`,
        )
      )
        .map(({ name }) => name)
        .sort();
    const [own = ''] = await templates();
    const [read, old] = ['office_template_000000000000_read', 'office_template_ffffffffffff'];
    for (const name of [read, old]) await server.sql(`create database ${name}`);
    const holder = new pg.Client(server.environment.DATABASE_URL);
    await holder.connect();
    try {
      await holder.query('select pg_advisory_lock($1, $2)', [lockSpaces.template, lockKey(old)]);
      await fill(1);
      expect(await templates()).to.deep.equal([own, old].sort());
    } finally {
      await holder.end();
    }
    await server.sql(`alter database ${old} allow_connections false`);
    expect(await findings()).to.deep.equal([['old_template', null]]);
    expect(await findings(true)).to.deep.equal([['old_template', null]]);
    expect(await templates()).to.deep.equal([own]);
  });

  it('provision of a folder creates each tenant once, prints a line for each login, and reports failed manifests at the end', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'backoffice-manifests-'));
    try {
      for (const slug of ['folder-0', 'folder-1'])
        await writeFile(join(folder, `${slug}.json`), JSON.stringify(manifestOf(slug)));
      await writeFile(join(folder, 'bad.json'), '{ "slug": "postgres" }');
      await writeFile(join(folder, 'elsewhere.json'), JSON.stringify({ ...manifestOf('nowhere'), server: 'none' }));
      const { code, stdout, stderr } = await runTenant('provision', '--file', folder, '--json');
      expect({ code, stderr }).to.deep.equal({ code: 1, stderr: '' });
      const lines: { slug: string; created: boolean; file: string; error?: string }[] = jsonLines(stdout);
      const made = lines.filter(({ error }) => !error).map(({ slug, created }) => [slug, created]);
      expect(made.sort()).to.deep.equal([
        ['folder-0', true],
        ['folder-1', true],
      ]);
      const failed = lines.filter(({ error }) => error).map(({ file }) => file);
      expect(failed.sort()).to.deep.equal(['bad.json', 'elsewhere.json']);
      await writeFile(join(folder, 'folder-2.json'), JSON.stringify(manifestOf('folder-2')));
      const again = await runTenant('provision', '--file', folder);
      expect(again.code).to.equal(1);
      const [made2 = '', end = ''] = again.stdout.split('\n\n');
      expect(
        made2
          .split('\n')
          .map(line => line.replace(/ {2}\S{12,}$/, '  …'))
          .sort(),
      ).to.deep.equal([
        `  ${manifestOf('folder-2').admin.email}  …`,
        'folder-0 exists already: nothing was changed.',
        'folder-1 exists already: nothing was changed.',
        'folder-2 is provisioned on default.',
      ]);
      expect(end).to.match(
        /^bad\.json: .*\nelsewhere\.json: .*\n5 manifests, 2 failed\. Passwords are shown only this once\.\n$/,
      );
    } finally {
      await rm(folder, { recursive: true });
    }
  });

  // The last, so that its check for orphans is that of all.
  it('concurrent provisions get different warm databases, also beyond the pool, and leave none behind', async () => {
    await fill(2);
    const slugs = Array.from({ length: 3 }, (_, number) => `many-${number}`);
    const all = await Promise.all(slugs.map(slug => provision(server.installation, passwords, manifestOf(slug))));
    expect(all.every(({ created }) => created)).to.equal(true);
    expect(new Set(all.map(({ tenant }) => tenant.databaseName)).size).to.equal(3);
    expect(await poolLines()).to.deep.equal([]);
    await expectNoOrphan();
  });
});
