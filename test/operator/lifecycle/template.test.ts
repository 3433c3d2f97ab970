import { expect } from 'chai';
import pg from 'pg';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { diagnose } from '../../../src/operator/doctor/doctor.ts';
import type { ScriptResult } from '../../support/command-line.ts';
import { createDedicatedServer } from '../../support/dedicated-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { use } from '../../support/use.ts';
import { expectNoOrphan, findingsOf } from './provisioned-server.ts';

describe('the template of new databases', () => {
  const server = use(createDedicatedServer);

  const runTenant = (...args: string[]): Promise<ScriptResult> =>
    runCommand('scripts/tenant.ts', args, server.environment);
  const provision = (slug: string) =>
    runTenant('provision', slug, '--name', slug, '--admin-email', `admin@${slug}.test`, '--json');

  /** Returns the templates on the server, with their oids. */
  const templates = () =>
    server.sql<{ name: string; oid: number }>(
      `select datname as name, oid from pg_database where datname ~ '^office_template_' order by 1`,
    );
  const nameOfTemplate = async (): Promise<string> => (await templates())[0]?.name ?? '';

  it('a template that accepts no connection is copied, and a new tenant has its guid and the seed rows only', async () => {
    const { tenant } = await server.provision('acme');

    const client = new pg.Client(databaseUrl(server.url, await nameOfTemplate()));
    const refusal = await client.connect().catch((error: { code: string }) => error.code);
    expect(refusal).to.equal('55000');
    expect(tenant.databaseName).to.match(/^office_tenant_\d+_[0-9a-f]{12}$/);
    expect(tenant.roleName).to.equal(tenant.databaseName);
    expect(await server.sql('select guid from tenant_identity', tenant.databaseName)).to.deep.equal(
      [{ guid: tenant.guid }],
    );
    expect(
      await server.sql('select title from entity_statuses', tenant.databaseName),
    ).to.have.length(3);
  });

  it('provisions that begin at once without a template make one, and each tenant gets a database of its own', async () => {
    await server.sql(`drop database "${await nameOfTemplate()}"`);

    const slugs = ['many-0', 'many-1', 'many-2'];
    const made = await Promise.all(slugs.map(slug => server.provision(slug)));

    expect(made.map(({ created }) => created)).to.deep.equal([true, true, true]);
    expect(new Set(made.map(({ tenant }) => tenant.databaseName)).size).to.equal(3);
    expect(await templates()).to.have.length(1);
    await expectNoOrphan(server);
  });

  it('a template in the order of a language is not copied: a provision makes it anew, by code point', async () => {
    const [before] = await templates();
    await server.sql(
      `update pg_database set datlocprovider = 'i', datlocale = 'tr', datcollversion = null
        where datname = '${before?.name}'`,
    );

    const { code, stderr } = await provision('sorted');

    const [after, ...others] = await templates();
    expect(code, stderr).to.equal(0);
    expect(after?.name).to.equal(before?.name);
    expect(after?.oid).not.to.equal(before?.oid);
    expect(others).to.deep.equal([]);
  });

  it('the unfinished template of a killed process is dropped by the next process that makes one', async () => {
    const name = await nameOfTemplate();
    await server.sql(`drop database "${name}"`);
    await server.sql(`create database "${name}_new"`);

    const { code, stderr } = await provision('left');

    expect(code, stderr).to.equal(0);
    expect((await templates()).map(each => each.name)).to.deep.equal([name]);
  });

  it('a database with the name of the template that accepts connections is neither copied nor dropped', async () => {
    const name = await nameOfTemplate();
    await server.sql(`alter database "${name}" rename to aside`);
    await server.sql(`create database "${name}"`);
    await server.sql('create table of_somebody (id bigint)', name);

    const { code, stderr } = await provision('refused');

    expect(code).to.equal(1);
    expect(stderr).to.include(
      `Database ${name} on server default has the name of the template, and accepts connec`,
    );
    expect(await server.sql('select from of_somebody', name)).to.deep.equal([]);

    await server.sql(`drop database "${name}"`);
    await server.sql(`alter database aside rename to "${name}"`);
    expect((await provision('refused')).code).to.equal(0);
    await expectNoOrphan(server);
  });

  it('doctor names the template of this build while it accepts connections, and --fix with the id closes it', async () => {
    const name = await nameOfTemplate();
    const ofTemplate = async () =>
      (await findingsOf(server)).filter(([check]) => check === 'open_template');

    await server.sql(`alter database "${name}" allow_connections true`);
    const opened = await ofTemplate();
    const chosen = (await diagnose(server.installation)).findings
      .filter(({ check }) => check === 'open_template')
      .map(({ id }) => id);
    await diagnose(server.installation, { fix: true, chosen });
    const closed = await ofTemplate();

    expect(opened).to.have.length(1);
    expect(closed).to.deep.equal([]);
  });

  it('doctor --fix drops the templates of other builds, and no database of their name that accepts connections', async () => {
    const own = await nameOfTemplate();
    const [old, read, open] = ['ffffffffffff', '000000000000_read', '111111111111'].map(
      end => `office_template_${end}`,
    );
    for (const name of [old, read, open]) await server.sql(`create database "${name}"`);
    await server.sql(`alter database "${old}" allow_connections false`);

    const found = await findingsOf(server, true);

    expect(found.filter(([check]) => check === 'old_template')).to.have.length(3);
    expect((await templates()).map(({ name }) => name).sort()).to.deep.equal([own, open].sort());
    await server.sql(`drop database "${open}"`);
  });
});
