import { expect } from 'chai';
import { catalogue } from '../../../src/operator/cli/catalogue.ts';
import { operationsOf } from '../../../src/operator/command/operation.ts';
import { withheld } from '../../../src/operator/console/offered.ts';
import { addSampleUser } from '../../auth/sample-users.ts';
import { controlSql, sql, useWorld } from '../../support/world.ts';
import { lastAction, pages, useConsole } from './console-client.ts';

describe('console: forms, plans and runs', () => {
  const world = useWorld();
  const opened = useConsole(world);

  const statusOf = async (slug: string): Promise<string | undefined> => {
    const [row] = await controlSql<{ status: string }>(world, `select status from tenants where slug = '${slug}'`);
    return row?.status;
  };
  it('every operation has a form, but those with a reason', async () => {
    const all = (await Promise.all(catalogue.map(operationsOf))).flat().map(({ name }) => name);
    expect(all).to.include.members(Object.keys(withheld));
    for (const name of all) {
      const { status, text } = await opened.get(`/operations/${name.replaceAll(' ', '/')}?slug=acme`);
      expect(status, name).to.equal(withheld[name] === undefined ? 200 : 404);
      if (status === 200) expect(text, name).to.include('Show as command');
    }
  });

  it('a form shows the command that does the same, with each word quoted for a shell', async () => {
    const fields = { slug: 'acme', name: "Jane's; rm -rf", reason: 'new owner', step: 'command' };
    const { text } = await opened.submit('/operations/edit', fields);
    expect(text).to.include(
      'bin/backoffice edit acme --name=&#39;Jane&#39;\\&#39;&#39;s; rm -rf&#39; --reason=&#39;new owner&#39;',
    );
  });

  it('a form with wrong values is shown again, with a link from each error to its field', async () => {
    const { status, text } = await opened.submit('/operations/provision', { step: 'plan', slug: 'new' });
    expect(status).to.equal(422);
    expect(text).to.include('role="alert"').and.include('href="#f-adminEmail"').and.include('value="new"');
  });

  it('an argument that is the word of another command neither runs nor shows that command', async () => {
    for (const step of ['run', 'command'])
      expect((await opened.submit('/operations/databases', { slug: 'prune', step })).text, step)
        .to.include('is a command of its own')
        .and.not.include('bin/backoffice databases prune');
  });

  it('a plan changes nothing, also when an argument begins with a hyphen; its secret reaches the command, and no page, command line or log shows it', async () => {
    const [email, password] = ['-till@acme.test', 'correct-horse-battery-9'];
    const users = () => controlSql(world, `select from users where email = '${email}'`);
    const fields = { slug: 'acme', email, password, step: 'plan' };
    const plan = await opened.ended((await opened.submit('/operations/user/add', fields)).path);
    expect(plan.text).to.include('Would be added').and.include('--password-stdin').and.not.include(password);
    expect(await users()).to.have.length(0);
    const added = await opened.ended((await opened.submit(`${plan.path}/perform`, {})).path);
    expect(await users(), added.text).to.have.length(1);
    expect(added.text).to.include(email).and.not.include(password);
    for (const path of pages) expect((await opened.get(path)).text).to.not.include(password);
    await world.login(world.acme, { email, password });
  });

  it('an operation that locks out shows its plan, wants the name typed, runs once, and is logged with its reason', async () => {
    const planned = await opened.submit('/operations/suspend', { slug: 'globex', reason: 'unpaid', step: 'run' });
    const plan = await opened.ended(planned.path);
    expect(plan.text).to.include('globex will not be served until it is resumed');
    expect(plan.text).to.match(/slug=globex&(amp;|#38;)reason=unpaid">Change the values/);
    expect(await statusOf('globex')).to.equal('active');
    const wrong = await opened.submit(`${plan.path}/perform`, { typed: 'acme' });
    expect(wrong.status).to.equal(422);
    expect(wrong.text).to.include('href="#typed"');
    expect(await statusOf('globex')).to.equal('active');
    const first = await opened.submit(`${plan.path}/perform`, { typed: 'globex' });
    const again = await opened.submit(`${plan.path}/perform`, { typed: 'globex' });
    expect(again.path).to.equal(first.path);
    expect((await opened.ended(first.path)).text).to.include('globex is suspended.');
    expect(await statusOf('globex')).to.equal('suspended');
    expect(await statusOf('acme')).to.equal('active');
    expect(await lastAction(world)).to.deep.include({ command: 'suspend', reason: 'unpaid' });
  });

  it('a plan that no longer holds is not done, and a login in the meantime does not change a plan', async () => {
    const { email, password } = await addSampleUser(world, world.acme);
    const plan = async () =>
      opened.ended((await opened.submit('/operations/user/remove', { slug: 'acme', email, step: 'plan' })).path);
    const perform = async ({ path }: { path: string }) =>
      opened.ended((await opened.submit(`${path}/perform`, { typed: email })).path);
    const stale = await plan();
    await controlSql(
      world,
      `update users set role_id = (select id from roles r where r.tenant_id = users.tenant_id and name = 'Administrator')
        where email = '${email}'`,
    );
    expect((await perform(stale)).text).to.include('The plan has changed. Make it again.');
    await world.login(world.acme, { email, password });
    const fresh = await plan();
    await world.login(world.acme, { email, password });
    expect((await perform(fresh)).text).to.include(`${email} is removed`);
  });

  it('a plan that says that it is refused cannot be done', async () => {
    await controlSql(world, `update tenants set schema_version = '0000-before' where slug = 'acme'`);
    await controlSql(
      world,
      `insert into processes (id, kind, host, pid, build, seen_at)
       values (gen_random_uuid(), 'service', 'elsewhere', 17, '0.0.9', now() + interval '1 minute')`,
    );
    try {
      const refused = await opened.submit('/operations/migrate', { slug: 'acme', step: 'plan' });
      expect((await opened.ended(refused.path)).text)
        .to.include('It would fail.')
        .and.include('Refused: 1 running process')
        .and.not.include('id="perform"');
    } finally {
      await controlSql(world, `delete from processes where host = 'elsewhere'`);
      await controlSql(
        world,
        `update tenants set schema_version = (select max(schema_version) from tenants) where slug = 'acme'`,
      );
    }
  });

  it('a form that is sent twice runs once, and another form, or other values, run again', async () => {
    const [admin] = await controlSql<{ email: string }>(
      world,
      `select email from users where tenant_id = (select id from tenants where slug = 'acme') order by id limit 1`,
    );
    const fields = { slug: 'acme', email: admin?.email ?? '', name: 'till', step: 'run', form: 'once' };
    const add = async (more = {}) => (await opened.submit('/operations/client/add', { ...fields, ...more })).path;
    const [first, second] = await Promise.all([add(), add()]);
    expect(second).to.equal(first);
    expect(await add({ step: 'plan' })).to.not.equal(first);
    expect(await add({ form: 'another', name: 'other' }))
      .to.match(/^\/runs\//)
      .and.not.equal(first);
    await opened.ended(first);
    const clients = await controlSql(world, `select from api_clients where name = 'till'`);
    expect(clients).to.have.length(1);
  });

  it('a check that finds something is done, has not failed, goes on without its browser, and shows its end when it is opened again', async () => {
    const { database } = world.acme;
    await controlSql(world, `grant temporary on database "${database}" to "${database}"`);
    await sql(world.acme, 'create index by_hand on countries (country_name)');
    try {
      const { path } = await opened.submit('/operations/doctor', { step: 'run' });
      const gone = new AbortController();
      const headers = { Cookie: opened.cookie };
      const first = await fetch(`${opened.origin}${path}`, { headers, signal: gone.signal });
      await first.body?.getReader().read();
      gone.abort();
      const { text } = await opened.ended(path);
      expect(text).to.include('It is done, and found something.').and.include('TEMPORARY on database');
      expect(text).to.include('class="state warn"').and.not.include('It has failed');
      const findings = (await opened.get('/findings?tenant=acme')).text;
      expect(findings)
        .to.include('Looked')
        .and.include('TEMPORARY on database')
        .and.include('CREATE INDEX by_hand ON public.countries');
      const id = /name="finding" value="(\w+)"/.exec(findings)?.[1] ?? '';
      expect((await opened.get('/tenants/acme')).text).to.include(`href="/findings?id=${id}#${id}"`);
      expect(findings).to.include(`/operations/doctor?fix=on&#38;finding=${id}">bin/backoffice doctor --fix ${id}</a>`);
    } finally {
      await sql(world.acme, 'drop index by_hand');
      await controlSql(world, `revoke temporary on database "${database}" from "${database}"`);
    }
  });

  it('a large result says what is left out, keeps its end, and links to the whole', async () => {
    const globex = `(select id from tenants where slug = 'globex')`;
    const insert = `
      insert into users (tenant_id, email, password_hash, first_name, last_name, role_id, scope)
      select tenant_id, 'large' || n || '@globex.test', 'none', 'Large', 'Result', id, 'Self'
        from roles, generate_series(1, 300) n where name = 'Member' and tenant_id = ${globex}`;
    await controlSql(world, insert);
    await controlSql(world, `update tenants set name = 'BEGIN' || repeat('x', 30000) || 'END' where slug = 'globex'`);
    try {
      const list = await opened.ended(
        (await opened.submit('/operations/user/list', { slug: 'globex', step: 'run' })).path,
      );
      const [row] = await controlSql<{ count: number }>(
        world,
        `select count(*)::int from users where tenant_id = ${globex}`,
      );
      const total = row?.count ?? 0;
      expect(list.text)
        .to.include(`${(total - 200).toLocaleString('en')} further rows are not shown`)
        .and.include(`href="${list.path}/output"`);
      const rows = (await opened.get(`${list.path}/output`)).text.split('\n').filter(row => row.startsWith('large'));
      expect(rows).to.have.length(300);
      const shown = await opened.ended((await opened.submit('/operations/show', { slug: 'globex', step: 'run' })).path);
      expect(shown.text)
        .to.match(/BEGINx+\n…\nx+END/)
        .and.match(/[\d,]+ characters are not shown/)
        .and.include(`href="${shown.path}/output"`);
      expect((await opened.get(`${shown.path}/output`)).text).to.match(/BEGINx{30000}END/);
    } finally {
      await controlSql(world, `delete from users where email like 'large%'`);
      await controlSql(world, `update tenants set name = 'Globex' where slug = 'globex'`);
    }
  });

  it('what an operation refuses is shown in the words of the command line', async () => {
    const { path } = await opened.submit('/operations/resume', { slug: 'nobody', step: 'plan' });
    expect((await opened.ended(path)).text)
      .to.include('There is no tenant nobody')
      .and.not.include('id="perform"');
  });
});
