import { expect } from 'chai';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { startReceiver } from '../../sales/webhooks/receiver.ts';
import { eventually } from '../../support/eventually.ts';
import { runCommand } from '../../support/run-command.ts';
import { use } from '../../support/use.ts';
import { controlSql, createWorld, sql } from '../../support/world.ts';
import { storeFindings } from '../registry/stored-findings.ts';
import { useConsole } from './console-client.ts';

const missing = {
  check: 'missing_database',
  tenant: 'acme',
  problem: 'database x is missing',
  remedy: 'Restore it: bin/backoffice restore acme --lost',
};

describe('console: the state of tenants', () => {
  const receiver = use(startReceiver);
  const world = use(() => createWorld({ WEBHOOK_TRUSTED_RECEIVERS: receiver.trusted }));
  const opened = useConsole(world);

  beforeEach(() => storeFindings(world, []));

  /** The words of a page, without its elements. */
  const words = async (path: string): Promise<string> =>
    (await opened.get(path)).text.replace(/<[^>]+>/g, ' ').replace(/\s+/g, ' ');

  it('the list, the page of a tenant and Now have both marks with the reason, and the list is filtered by them', async () => {
    await storeFindings(world, [missing]);

    expect(await words('/tenants')).to.match(
      /acme \S+( \S+)* active ✕ unwell database x is missing/,
    );
    expect(await words('/tenants')).to.match(/globex \S+( \S+)* active ● well/);
    expect(await words('/tenants/acme'))
      .to.include('State: active')
      .and.include('Health: ✕ unwell doctor looked');
    expect(await words('/tenants/acme')).to.include('✕ error database x is missing');
    expect(await words('/')).to.match(/acme database x is missing ✕ error/);
    expect(await words('/')).to.match(/Unwell ✕ unwell 1/);
    expect((await opened.get('/tenants?health=unwell')).text)
      .to.include('href="/tenants/acme"')
      .and.not.include('href="/tenants/globex"');
  });

  it('Now lists a tenant once, with all of its faults', async () => {
    await storeFindings(world, [
      missing,
      { ...missing, check: 'missing_key', problem: 'no key signs', remedy: 'Make one' },
    ]);

    const { text } = await opened.get('/');

    expect(text.match(/<a href="\/tenants\/acme">/g)).to.have.length(1);
    expect(text).to.include('database x is missing').and.include('no key signs');
  });

  it('a database that doctor has reported as missing is not shown as serving its tenant', async () => {
    const problem = `database ${world.acme.database} is missing`;
    await storeFindings(world, [{ ...missing, problem }]);

    const page = await words('/tenants/acme');

    expect(page).to.include(`${problem}: Restore it:`);
    expect(page).to.not.include('serves the tenant');
    expect(await words('/tenants/globex')).to.include('serves the tenant');
  });

  it('the users with an address have both marks of their tenant, with the reason', async () => {
    await storeFindings(world, [{ ...missing, problem: 'database x is missing' }]);

    const page = await words(`/tenants?q=${world.acme.admin.email}`);

    expect(page).to.match(/acme ● active ✕ unwell database x is missing Administrator/);
  });

  it('a webhook that fails for some minutes is on Now, on the page of its tenant and in webhooks, with what waits', async () => {
    receiver.respond('/hook', response => response.writeHead(503).end());
    const admin = await world.login(world.acme);
    const hook = { Url: receiver.url('/hook'), Resources: ['Currency'] };
    expect((await admin.post('/api/v1/Webhooks', hook)).status).to.equal(201);
    for (const Code of ['XAA', 'XAB']) {
      expect(
        (await admin.post('/api/v1/Currency', { Code, Name: Code, Symbol: Code })).status,
      ).to.equal(201);
    }
    await eventually(() => receiver.at('/hook').length > 0);
    await sql(world.acme, `update webhooks set failing_since = now() - interval '35 minutes'`);
    await controlSql(world, 'update webhook_tenants set due_at = now(), wakes = wakes + 1');

    const said =
      /webhook 1 to 127\.0\.0\.1:\d+ fails: its receiver answers 503 Service Unavailable; 2 messages wait/;
    await eventually(async () => said.test(await words('/')));

    expect(await words('/tenants/acme'))
      .to.match(said)
      .and.include('since 35 min ago');
    expect(await words('/tenants/globex')).to.include('Health: ● well');
    const { stdout } = await runCommand(
      'scripts/backoffice.ts',
      ['webhooks', 'acme', '--json'],
      world.environment,
    );
    expect(JSON.parse(stdout)[0]).to.include({
      state: 'failing',
      reason: 'its receiver answers 503 Service Unavailable',
      waiting: 2,
    });
    await sql(world.acme, 'delete from webhooks');
    await controlSql(
      world,
      'update webhook_tenants set failing = 0, failing_since = null, due_at = null',
    );
  });

  it('a finding whose remedy was run is done since, and no error, on Now and Findings', async () => {
    await storeFindings(world, [{ ...missing, remedy: 'Serve it: bin/backoffice resume acme' }]);
    await runCommand('scripts/backoffice.ts', ['resume', 'acme'], world.environment);

    expect(await words('/'))
      .to.include('done since, not checked again')
      .and.match(/Changes since then 1/);
    expect(await words('/findings')).to.match(/Errors 0 .* Done since, not checked again 1/);
    expect(await words('/tenants/acme')).to.include('Health: ○ unchecked');
  });

  it('Check now checks without a form to fill in, and says so for a finding as no failure', async () => {
    await sql(world.acme, 'create index by_hand on countries (country_name)');
    for (const page of ['/', '/findings', '/tenants/acme']) {
      expect((await opened.get(page)).text, page).to.match(
        /action="\/operations\/doctor"[\s\S]*?<button>Check now/,
      );
    }

    const { path } = await opened.submit('/operations/doctor', { step: 'run' });
    const { text } = await opened.ended(path);

    expect(text)
      .to.match(/\d+ of \d+ done, \d+ with findings/)
      .and.not.include(' failed');
    expect(await words('/tenants/acme')).to.include('Health: ✕ unwell');
    await sql(world.acme, 'drop index by_hand');
  });

  const verbs = {
    active: ['suspend', 'isolate', 'delete'],
    suspended: ['resume', 'isolate', 'delete'],
    deleted: ['undelete', 'purge'],
  };

  for (const [status, names] of Object.entries(verbs)) {
    it(`the page of a tenant that is ${status} has the verbs of that state first, and what destroys apart`, async () => {
      await controlSql(world, `update tenants set status = '${status}' where slug = 'globex'`);
      try {
        const { text } = await opened.get('/tenants/globex');
        const decisions = [
          ...text.matchAll(
            /href="\/operations\/(suspend|resume|undelete|isolate|delete|purge)\?slug=globex/g,
          ),
        ];
        const apart = text.slice(text.indexOf('destroys</span>'));

        expect(decisions.map(([, name]) => name)).to.deep.equal(names);
        expect(text).to.include('href="/tenants/globex/commands"');
        expect(text.match(/href="\/operations\//g)).to.have.length.below(25);
        expect(apart)
          .to.include(`/operations/${names.at(-1)}?`)
          .and.not.include(`/operations/${names[0]}?`);
      } finally {
        await controlSql(world, `update tenants set status = 'active' where slug = 'globex'`);
      }
    });
  }

  it('all commands of a tenant are on one page, and those that hurt somebody stand apart, marked', async () => {
    const { text } = await opened.get('/tenants/globex/commands');
    const [harmless = '', hurting = ''] = text.split('What locks somebody out');

    expect(harmless)
      .to.include('/operations/clone?slug=globex')
      .and.not.include('/operations/purge');
    expect(hurting)
      .to.include('/operations/purge?slug=globex')
      .and.include('/operations/suspend?slug=globex');
    expect(hurting).to.include('✕').and.include('destroys');
  });

  it('a text of a tenant that looks like a command is no link on any page', async () => {
    const command = 'bin/backoffice purge globex';
    await controlSql(world, `update tenants set name = '${command}' where slug = 'globex'`);
    await controlSql(
      world,
      `with run as (insert into migration_runs (head, requested_by, state)
                    values ('0001', 'jane@office', 'failed') returning id)
       insert into migration_outcomes (run_id, tenant_id, state, error)
       select run.id, t.id, 'failed', '${command} exists' from run, tenants t where slug = 'globex'`,
    );

    const [run] = await controlSql<{ id: string }>(
      world,
      'select max(id) as id from migration_runs',
    );

    try {
      for (const path of [
        '/',
        '/tenants',
        '/tenants/globex',
        '/migrations',
        `/migrations/${run?.id}`,
        '/recovery/globex',
      ]) {
        expect((await opened.get(path)).text, path).to.not.include(`>${command}</a>`);
      }

      const { path } = await opened.submit('/operations/show', { slug: 'globex', step: 'run' });
      expect((await opened.ended(path)).text)
        .to.include(command)
        .and.not.include(`>${command}</a>`);
    } finally {
      await controlSql(world, 'delete from migration_runs');
      await controlSql(world, `update tenants set name = 'Globex' where slug = 'globex'`);
    }
  });

  it('a page that does not exist leads to what there is, never to another host', async () => {
    for (const path of ['//host.example/x', '/nowhere', '/tenants/nobody']) {
      const { status, text } = await opened.get(path);

      expect(status, path).to.equal(404);
      expect(text, path).to.not.include('href="//').and.not.include('Try again');
      expect(text, path).to.include('<a href="/">See what there is</a>');
    }
  });

  it('every page that shows the fleet says when it was made, and has the note that a style shows after a minute', async () => {
    for (const path of ['/', '/tenants', '/tenants/acme', '/findings', '/capacity', '/log']) {
      expect((await opened.get(path)).text, path)
        .to.match(/as of <time datetime="\d{4}-/)
        .and.include(`class="aged" role="status"`)
        .and.include(`<a href="${path}">Show it as it is now</a>`);
    }
    expect((await opened.get('/operations/list')).text).to.not.include('class="aged"');
  });

  it('a run that somebody ends early is neither red nor failed, and says for how long it has run', async () => {
    await withConnection(world.environment.DATABASE_URL ?? '', async client => {
      await client.query(`begin; select from tenants where slug = 'globex' for update`);
      const { path } = await opened.submit('/operations/edit', {
        slug: 'globex',
        name: 'Other',
        step: 'run',
      });
      expect(await words(path)).to.match(/State ◐ running .* Runs for \d+ (ms|s)/);

      await opened.submit(`${path}/cancel`, {});
      await opened.ended(path);

      expect(await words(path)).to.match(
        /It was ended early\. State ○ ended early .* Took \d+ (ms|s)/,
      );
      expect((await opened.get(path)).text)
        .to.not.include('state bad')
        .and.not.include('note bad');
      await client.query('rollback');
    });
  });
});
