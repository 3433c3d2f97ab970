import { expect } from 'chai';
import { makeNextBuild } from '../../support/next-build.ts';
import { runCommand } from '../../support/run-command.ts';
import { controlSql, sql, useWorld } from '../../support/world.ts';
import { openConsole, pages, useConsole } from './console-client.ts';

const script = '<script>alert(1)</script>';

describe('console: pages', () => {
  const world = useWorld();
  const opened = useConsole(world);

  it('pages open no connection to a tenant database', async () => {
    const names = [world.acme, world.globex];
    const allow = (isAllowed: boolean) =>
      Promise.all(
        names.map(({ database }) =>
          controlSql(world, `alter database "${database}" allow_connections ${isAllowed}`),
        ),
      );

    await sql(world.acme, 'select');
    await allow(false);

    try {
      for (const path of pages) expect((await opened.get(path)).status, path).to.equal(200);
    } finally {
      await allow(true);
    }
  });

  it('a command in a text is a link to its form, filled in', async () => {
    await controlSql(
      world,
      `insert into tenant_databases (tenant_id, server_id, database_name, role_name, state, origin, kept_by)
       select id, server_id, 'kept_by_test', role_name, 'kept', 'a move', 'move' from tenants where slug = 'acme'`,
    );

    try {
      expect((await opened.get('/tenants/acme')).text).to.include(
        '<a href="/operations/move?slug=acme&#38;back=on">bin/backoffice move acme --back</a>',
      );
    } finally {
      await controlSql(world, `delete from tenant_databases where database_name = 'kept_by_test'`);
    }

    const { status, text } = await opened.get('/tenants/nobody');
    expect(status).to.equal(404);
    expect(text).to.include('<a href="/operations/list">bin/backoffice list</a>');
  });

  it('the page of a migration run shows its canaries, and the tenants that were not begun after them', async () => {
    const [run] = await controlSql<{ id: string }>(
      world,
      `with run as (insert into migration_runs (head, canary, requested_by, state)
                    values ('0001', 1, 'jane@office', 'halted') returning id)
       insert into migration_outcomes (run_id, tenant_id, state, started_at)
       select run.id, t.id, case slug when 'globex' then 'failed' else 'skipped' end, case slug when 'globex' then now() end
         from run, tenants t returning run_id as id`,
    );

    const { text } = await opened.get(`/migrations/${run?.id}`);
    await controlSql(world, `delete from migration_runs where id = ${run?.id}`);

    const rows = text.replace(/<[^>]+>/g, ' ').replace(/\s+/g, ' ');
    expect(rows)
      .to.match(/Canaries 1 1 ✕ failed/)
      .and.match(/All others 1 1 ○ skipped/);
  });

  it('the page of a run that differences of the schema have stopped offers to undo them, and not the same run again', async () => {
    const difference = {
      object: 'index by_hand',
      text: 'index by_hand is not part of it',
      sql: ['drop index "by_hand"'],
    };
    const failure = {
      sqlState: null,
      migration: null,
      statement: null,
      log: null,
      differences: [difference],
    };
    const [run] = await controlSql<{ id: string }>(
      world,
      `with run as (insert into migration_runs (head, requested_by, state)
                    values ('0001', 'jane@office', 'failed') returning id)
       insert into migration_outcomes (run_id, tenant_id, state, error, failure)
       select run.id, t.id, 'failed', 'it differs', '${JSON.stringify(failure)}'
         from run, tenants t where slug = 'globex' returning run_id as id`,
    );

    const { text } = await opened.get(`/migrations/${run?.id}`);
    await controlSql(world, `delete from migration_runs where id = ${run?.id}`);

    expect(text).to.include('drop index &#34;by_hand&#34;;').and.include('/findings?tenant=globex');
    expect(text).to.not.include('Retry what failed').and.not.include('Migrate again');
  });

  it('of many failures the first ones are shown, and how many more there are, with a link to the list', async () => {
    await controlSql(
      world,
      `insert into tenants (slug, name, app_id, status, server_id, database_name, role_name, role_password)
       select 't' || n, 'T', 'app', 'active', id, 'none_' || n, 'none_' || n, ''
         from servers, generate_series(1, 137) n`,
    );

    await controlSql(
      world,
      `with run as (insert into migration_runs (head, requested_by, state)
                               values ('0001', 'jane@office', 'failed') returning id)
       insert into migration_outcomes (run_id, tenant_id, state, error)
       select run.id, t.id, 'failed', 'it is broken' from run, tenants t where slug like 't%'`,
    );

    const now = (await opened.get('/')).text;
    expect(now)
      .to.include('and 129 more tenants')
      .and.include('<a href="/tenants?health=unwell">All that are unwell</a>');

    const list = (await opened.get('/migrations?page=7')).text;
    expect(list)
      .to.include('Tenants whose last migration failed (137)')
      .and.include('it is broken')
      .and.include('t99');

    await controlSql(world, `delete from tenants where slug like 't%'`);
    await controlSql(world, 'delete from migration_runs');
  });

  it('the heading of a column sorts the list by it', async () => {
    const { text } = await opened.get('/tenants?sort=-slug');
    expect(text).to.match(/aria-sort="descending"><button name="sort" value="slug">Slug/);
    expect(
      [...text.matchAll(/href="\/tenants\/(acme|globex)"/g)].map(([, slug]) => slug),
    ).to.deep.equal(['globex', 'acme']);
  });

  it('the log shows the changes of a period, says how many of how many they are, and leads to older ones', async () => {
    await controlSql(
      world,
      `insert into operator_actions (operator, build, command, slug, state, started_at)
       select 'jane@office', '0', 'edit', 'acme', 'done', '2025-03-01'::timestamptz + n * interval '1 minute'
         from generate_series(1, 167) n`,
    );
    const since = '2025-03-01T00:00';
    const first = await opened.get(`/log?since=${since}&until=2025-03-02T00:00&operator=jane`);
    const older = /href="([^"]+)">Older</.exec(first.text)?.[1]?.replaceAll('&#38;', '&') ?? '';
    const second = await opened.get(older);
    const morning = await opened.get(`/log?since=${since}&until=2025-03-01T00:11&operator=jane`);
    const command = await runCommand(
      'scripts/backoffice.ts',
      ['logs', '--operator', 'jane', '--since', '2025-03-01', '--until', '2025-03-02', '--json'],
      world.environment,
    );
    await controlSql(world, `delete from operator_actions where operator = 'jane@office'`);

    expect(first.text)
      .to.include('Changes, the newest first: 50 of 167')
      .and.include('2025-03-01 02:47:00 UTC');
    expect(second.text)
      .to.include('51 to 100 of 167')
      .and.include('2025-03-01 01:57:00 UTC')
      .and.include('>Newest<');
    expect(morning.text).to.include('Changes, the newest first: all 10');
    const page = JSON.parse(command.stdout);
    expect({ ...page, items: page.items.length, older: typeof page.older }).to.deep.equal({
      items: 50,
      total: 167,
      newer: 0,
      older: 'number',
    });
  });

  it('a search has one answer: an address finds its users, and a part of one says what is looked for', async () => {
    const { email } = world.acme.admin;

    const whole = (await opened.get(`/tenants?q=${email}`)).text;
    const half = (await opened.get(`/tenants?q=${email.slice(0, -3)}`)).text;
    const name = (await opened.get('/tenants?q=nobody')).text;

    expect(whole)
      .to.include(`Users with the address ${email}`)
      .and.not.include('There is no such tenant');
    expect(half).to.include('It must be whole').and.not.include('There is no such tenant');
    expect(name).to.include('and a whole e-mail address its users');
  });

  it('markup in names and in errors is text on every page', async () => {
    await controlSql(world, `update tenants set name = '${script}' where slug = 'acme'`);
    await controlSql(
      world,
      `insert into operator_actions (operator, build, command, slug, reason, state, error)
       values ('${script}', '0', 'edit', 'acme', '${script}', 'failed', '${script}')`,
    );

    for (const path of [
      ...pages,
      `/tenants?q=${script}`,
      `/log?slug=${script}`,
      `/tenants/${encodeURIComponent(script)}`,
    ]) {
      expect((await opened.get(path)).text, path).to.not.include(script);
    }

    const { path } = await opened.submit('/operations/resume', {
      slug: script,
      reason: script,
      step: 'plan',
    });

    expect((await opened.ended(path)).text).to.not.include(script);
    expect((await opened.get('/tenants/acme')).text).to.include('&#60;script&#62;');
  });

  it('a server is shown with the last known size of its data, and with the findings of the server itself', async () => {
    const finding = {
      id: 'aaaaaaaa',
      check: 'wal_not_archived',
      server: 'default',
      severity: 'warning',
      tenant: null,
    };
    const texts = {
      problem: 'nothing was archived so far',
      remedy: 'Set archive_mode',
      repair: null,
      fixed: false,
    };

    const measured = {
      server: 'default',
      databases: 5,
      archivedAt: null,
      archiveFails: false,
      receivers: 2,
      lagBytes: 3e6,
      notEntered: [],
    };
    const counts = { servers: 1, tenants: 2, healthy: true, measured: [measured] };
    const report = { ...counts, findings: [{ ...finding, ...texts }] };

    // also what another test has let doctor find
    await controlSql(world, 'delete from tenant_usage; delete from doctor_reports');
    await controlSql(
      world,
      `insert into tenant_usage (tenant_id, hour, database_bytes)
       select id, date_trunc('hour', now()) - h * interval '1 hour', 20000000 from tenants, generate_series(0, 1) h`,
    );
    await controlSql(
      world,
      `insert into doctor_reports (made_by, report) values ('jane@office', '${JSON.stringify(report)}')`,
    );

    const { text } = await opened.get('/capacity');
    const rows = text.replace(/<[^>]+>/g, ' ').replace(/\s+/g, ' ');

    expect(rows).to.match(
      /38\.1 MiB \d{4}-\d\d-\d\d, \d\d:00 to \d\d:00 UTC 5 never 2, at most 2\.9 MiB behind ▲ 1/,
    );
    expect(text).to.include('href="/findings?server=default"');
    expect((await opened.get('/findings?server=default')).text).to.include(
      'nothing was archived so far',
    );

    await controlSql(world, 'delete from doctor_reports');
  });

  it('after a migration, no page says that the tenant is behind, and the findings say that they are older than a change', async () => {
    const next = await makeNextBuild();
    const script = next.file('scripts/backoffice.ts');
    const run = async (...args: string[]) =>
      (await runCommand(script, args, world.environment)).code;
    const upgraded = await openConsole(world.environment, [], {}, script);
    try {
      expect(await run('doctor')).to.equal(1);
      // Not the page Now, where findings about databases of other tests may come first.
      const isBehind = 'this build needs';
      expect((await upgraded.get('/tenants/globex')).text).to.include(isBehind);
      expect((await upgraded.get('/findings?tenant=globex')).text)
        .to.include('the database is at')
        .and.match(/Changes since then<\/dt><dd>0</);

      expect(await run('migrate', 'globex', '--despite-running')).to.equal(0);

      expect((await upgraded.get('/tenants/globex')).text).to.not.include(isBehind);
      expect((await upgraded.get('/findings?tenant=globex')).text)
        .to.match(/repaired<\/span> <a href="\/tenants\/globex"/)
        .and.match(/Changes since then<\/dt><dd><a href="\/log">1</);
    } finally {
      await upgraded.stop();
      await next.remove();
    }
  });
});
