import { expect } from 'chai';
import type { ApiResponse, Client } from '../../support/client.ts';
import { announcedMs, eventually } from '../../support/eventually.ts';
import { useEach } from '../../support/use.ts';
import { controlSql, createWorld } from '../../support/world.ts';
import { slugCommands } from './slug-commands.ts';

const path = '/api/v1/EntityStatus';

describe('slugs of tenants', () => {
  const world = useEach(() => createWorld());

  const { run, runWell, provision, endAlias } = slugCommands(world);
  const json = async <Document>(...args: string[]): Promise<Document> =>
    JSON.parse(await runWell(...args, '--json')) as Document;
  const logged = async (slug: string): Promise<string[]> =>
    (await json<{ items: { command: string }[] }>('logs', slug)).items.map(
      ({ command }) => command,
    );
  const logIn = (tenant: string, who = world.acme.admin): Promise<ApiResponse> =>
    world.anonymous.post('/api/v1/auth/login', who, { 'X-Tenant': tenant });

  it('a tenant with another slug is found by the former one for a time, and keeps its log and sessions', async () => {
    const other = await world.startAnotherServer();
    const client = await world.login(world.acme);
    await runWell('edit', 'acme', '--name', 'Acme One');

    const planned = await json<{ changes: object[] }>(
      'edit',
      'acme',
      '--slug',
      'acme-world',
      '--dry-run',
    );
    expect(planned.changes[0]).to.deep.equal({ field: 'slug', from: 'acme', to: 'acme-world' });
    expect((await logIn('acme-world')).status, 'after the plan').to.equal(403);

    const changed = await json<object>('edit', 'acme', '--slug', 'acme-world');
    expect(changed).to.include({ slug: 'acme-world', guid: world.acme.guid, state: 'changed' });

    for (const url of [world.url, other.url]) {
      for (const name of ['acme-world', 'acme', 'ACME']) {
        const { status, body } = await world.anonymous
          .at(url)
          .post('/api/v1/auth/login', world.acme.admin, { 'X-Tenant': name });
        expect(status, name).to.equal(200);
        const me = await client.at(url).withToken(body.accessToken).get('/api/v1/auth/me');
        expect(me.body.tenantGuid).to.equal(world.acme.guid);
      }
    }
    expect((await client.get(path)).status, 'a session from before').to.equal(200);
    expect((await logIn('acme', world.globex.admin)).status).to.equal(401);

    const before = await run('show', 'acme', '--json');
    expect(before.code).to.equal(0);
    expect(before.stderr).to.match(/acme is a former slug of acme-world, and leads to it until \d/);
    const shown = JSON.parse(before.stdout);
    expect(shown.slug).to.equal('acme-world');
    expect(shown.aliases).to.match(/^acme until \d{4}-\d\d-\d\d$/);
    const listed = await json<{ slug: string; aliases: string | null }[]>('list', 'acme');
    expect(listed.map(({ slug }) => slug)).to.deep.equal(['acme-world']);

    const [row] = await controlSql<{ days: number }>(
      world,
      `select round(extract(epoch from alias_until - now()) / 86400)::int as days from tenant_slugs where slug = 'acme'`,
    );
    expect(row).to.deep.equal({ days: 30 });

    await runWell('user', 'add', 'acme', 'bob@acme.test');
    expect(await logged('acme-world')).to.deep.equal(['user add', 'edit', 'edit']);
    expect(await logged('acme')).to.deep.equal(['user add', 'edit', 'edit']);
    expect(await logged('globex')).to.deep.equal([]);
  });

  it('a command that is confirmed wants the present slug typed, and an alias leads it to the same tenant', async () => {
    await runWell('edit', 'acme', '--slug', 'acme-world');

    const suspended = await run('suspend', 'acme');
    expect(suspended.code).to.equal(2);
    expect(suspended.stderr).to.match(/^.*\n?acme-world will not be served/);

    await runWell('suspend', 'acme', '--yes');
    expect((await logIn('acme')).status, 'an alias of a suspended tenant').to.be.oneOf([200, 403]);
    await eventually(async () => (await logIn('acme')).status === 403, announcedMs);
    await runWell('resume', 'acme-world');
    await eventually(async () => (await logIn('acme')).status === 200, announcedMs);
  });

  it('no tenant gets a slug, an alias or a reserved slug of another, by a command, a manifest or SQL', async () => {
    await runWell('edit', 'acme', '--name', 'Acme One', '--slug', 'acme-world');

    for (const [slug, text] of [
      ['acme-world', /is the slug of Acme One/],
      ['acme', /is an alias of Acme One/],
    ] as const) {
      for (const more of [[], ['--dry-run']]) {
        const { code, stderr } = await run('edit', 'globex', '--slug', slug, ...more);
        expect(code, slug).to.equal(1);
        expect(stderr).to.match(text);
      }
    }
    expect((await provision('acme')).stderr).to.match(/The tenant acme-world exists already/);
    expect((await run('clone', 'globex', 'acme')).stderr).to.match(/acme-world exists already/);
    expect((await run('edit', 'globex', '--slug', 'template')).stderr).to.equal(
      '--slug is a reserved word.\n',
    );

    await runWell('edit', 'acme-world', '--alias-days', '0');
    expect((await logIn('acme')).status).to.equal(403);
    expect((await run('show', 'acme')).stderr).to.match(/its slug is acme-world/);

    const reserved = new RegExp(
      `acme was the slug of Acme One \\(${world.acme.guid}\\) until [\\d-]+; it is acme-world now`,
    );
    for (const args of [
      ['edit', 'globex', '--slug', 'acme'],
      ['clone', 'globex', 'acme'],
      ['clone', 'globex', 'acme', '--dry-run'],
      ['provision', 'acme', '--name', 'x', '--admin-email', 'a@b.test'],
      ['provision', 'acme', '--name', 'x', '--admin-email', 'a@b.test', '--dry-run'],
    ]) {
      const { code, stderr } = await run(...args);
      expect(code, args.join(' ')).to.equal(1);
      expect(stderr, args.join(' ')).to.match(reserved);
      expect(stderr).to.include('bin/backoffice provision acme --reuse-slug');
    }

    const bySql = controlSql(world, `update tenants set slug = 'acme' where slug = 'globex'`);
    expect(await bySql.then(() => 'accepted', String)).to.match(
      /is, or was, that of another tenant/,
    );
  });

  it('a tenant takes its own former slug back, and the days of its aliases are set anew', async () => {
    await runWell('edit', 'acme', '--slug', 'acme-world', '--alias-days', '0');

    await runWell('edit', 'acme-world', '--slug', 'acme', '--alias-days', '2');
    expect((await logIn('acme')).status).to.equal(200);
    expect((await logIn('acme-world')).status).to.equal(200);
    await runWell('edit', 'acme', '--alias-days', '60');
    const { aliases } = await json<{ aliases: string }>('show', 'acme');
    const end = new Date(Date.now() + 60 * 86_400_000).toISOString().slice(0, 10);
    expect(aliases).to.equal(`acme-world until ${end}`);
    await endAlias('acme-world');
    expect((await run('show', 'acme-world')).code).to.equal(1);
  });

  it('a slug of another company is given again only by --reuse-slug, which names the company and is confirmed, and the log begins anew', async () => {
    await runWell('suspend', 'acme', '--yes');
    await runWell('resume', 'acme');
    await runWell('user', 'add', 'acme', 'bob@acme.test');
    const newSlug = ['--slug', 'acme-world', '--alias-days', '0'];
    await runWell('edit', 'acme', '--name', 'Acme One', ...newSlug);

    const unconfirmed = await provision('acme', '--reuse-slug');
    expect(unconfirmed.code).to.equal(2);
    expect(unconfirmed.stderr).to.match(
      new RegExp(`^acme was the slug of Acme One \\(${world.acme.guid}\\)`),
    );
    expect(unconfirmed.stderr).to.match(/Add --yes to confirm; nothing was changed/);
    expect((await provision('acme', '--reuse-slug', '--dry-run')).code).to.equal(0);
    expect((await logIn('acme')).status, 'still reserved').to.equal(403);

    const { code, stdout, stderr } = await provision('acme', '--reuse-slug', '--yes', '--json');
    expect(code, stderr).to.equal(0);
    const made = JSON.parse(stdout);
    expect(made.guid).to.not.equal(world.acme.guid);

    const me = async (tenant: string, who: object): Promise<string> => {
      const { body } = await world.anonymous.post('/api/v1/auth/login', who, {
        'X-Tenant': tenant,
      });
      const client: Client = world.anonymous.withToken(body.accessToken);
      return (await client.get('/api/v1/auth/me')).body.tenantGuid;
    };
    expect(await me('acme', made.admin)).to.equal(made.guid);
    expect(await me('acme-world', world.acme.admin)).to.equal(world.acme.guid);
    expect((await logIn('acme')).status, 'the password of the former').to.equal(401);

    expect(await logged('acme')).to.deep.equal(['provision']);
    expect(await logged('acme-world')).to.deep.equal(['edit', 'user add', 'resume', 'suspend']);
  });

  it('the slug of a purged company is reserved, and that of a clone or of a failed provision is free', async () => {
    await runWell('clone', 'globex', 'globex-test');
    await runWell('delete', 'globex-test', '--yes');
    await runWell('purge', 'globex-test', '--yes');
    expect((await provision('globex-test')).code, 'of a clone').to.equal(0);

    await runWell('edit', 'globex', '--slug', 'globex-two');
    await runWell('delete', 'globex', '--yes');
    await runWell('purge', 'globex', '--yes');
    for (const slug of ['globex', 'globex-two']) {
      const refused = await provision(slug);
      expect(refused.code, slug).to.equal(1);
      expect(refused.stderr).to.match(/globex Ltd \([0-9a-f-]{36}\) until [\d-]+; it is purged/);
    }
    expect(await logged('globex'), 'by the guid').to.deep.equal(await logged(world.globex.guid));
    expect((await provision('globex', '--reuse-slug', '--yes')).code).to.equal(0);
    expect(await logged('globex')).to.deep.equal(['provision']);
    expect((await logged(world.globex.guid)).slice(0, 4)).to.deep.equal([
      'purge',
      'delete',
      'edit',
      'clone',
    ]);

    await controlSql(
      world,
      `insert into tenants (slug, name, app_id, server_id, database_name, role_name, role_password)
       select 'unready', 'x', 'x', server_id, 'none of it', 'none', role_password from tenants limit 1`,
    );
    await runWell('purge', 'unready', '--yes');
    expect((await provision('unready')).code, 'never served').to.equal(0);
  });
});
