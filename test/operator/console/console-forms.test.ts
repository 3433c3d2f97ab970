import { expect } from 'chai';
import { catalogue } from '../../../src/operator/cli/catalogue.ts';
import { type Operation, operationsOf } from '../../../src/operator/command/operation.ts';
import type { Field } from '../../../src/operator/command/operation-fields.ts';
import { operationPath } from '../../../src/operator/console/links.ts';
import { withheld } from '../../../src/operator/console/offered.ts';
import { addSampleUser } from '../../accounts/auth/sample-users.ts';
import { controlSql, sql, useWorld } from '../../support/world.ts';
import { lastAction, pages, useConsole } from './console-client.ts';

/**
 * Returns the text of a page, without the command that a form stands for and without the mode
 * of the console.
 */
function visibleText(page: string): string {
  const main = /<main[^>]*>([\s\S]*)<\/main>/.exec(page)?.[1] ?? page;
  const text = main
    .replace(/<pre[^>]*aria-label="the command"[\s\S]*?<\/pre>/g, ' ')
    .replace(/<[^>]+>/g, ' ');

  return text
    .replace(/&#(\d+);/g, (_, code: string) => String.fromCharCode(Number(code)))
    .replace(/bin\/backoffice [\w -]+/g, ' ')
    .replace(/\s+/g, ' ');
}

/** True for a field whose text must be a number. */
function isNumber({ kind, choices, parse }: Field): boolean {
  const accepts = (text: string): boolean => {
    try {
      return typeof parse?.(text) === 'number';
    } catch {
      return false;
    }
  };

  return kind === 'text' && choices === undefined && accepts('7');
}

describe('console: forms, plans and runs', () => {
  const world = useWorld();
  const opened = useConsole(world);

  const statusOf = async (slug: string): Promise<string | undefined> => {
    const [row] = await controlSql<{ status: string }>(
      world,
      `select status from tenants where slug = '${slug}'`,
    );
    return row?.status;
  };
  /** The operations with a form, by name. */
  const all = new Map<string, Operation>();
  before(async () => {
    for (const operation of (await Promise.all(catalogue.map(operationsOf))).flat()) {
      if (withheld[operation.name] === undefined) all.set(operation.name, operation);
    }
  });

  it('every operation has a form, unless a reason is given why it has none', async () => {
    const names = (await Promise.all(catalogue.map(operationsOf))).flat().map(({ name }) => name);
    expect(names).to.include.members(Object.keys(withheld));
    for (const name of names) {
      const { status, text } = await opened.get(`${operationPath(name)}?slug=acme`);
      expect(status, name).to.equal(withheld[name] === undefined ? 200 : 404);
      if (status === 200) expect(text, name).to.include('Show as command');
    }
  });

  it('a form speaks the words of a person: no flag, no setting, and no stream of a command line', async () => {
    const found: string[] = [];
    for (const name of all.keys()) {
      const words = visibleText((await opened.get(`${operationPath(name)}?slug=acme`)).text);
      const technical =
        words.match(/--[a-z][\w-]*|\bstd(in|out|err)\b|\b[A-Z]{2,}(_[A-Z]+)+\b/g) ?? [];
      found.push(...technical.map(word => `${name}: ${word}`));
    }

    expect(found).to.deep.equal([]);
  });

  it('each number that an operation takes has its unit, on the command line and behind the input of its form', async () => {
    const ids = [
      'user add entity',
      'program add entity',
      'webhooks disable id',
      'logs before',
      'runs list before',
    ];
    const found: string[] = [];

    for (const [name, { fields }] of all) {
      const { text } = await opened.get(`${operationPath(name)}?slug=acme`);
      for (const [field, definition] of Object.entries(fields).filter(([, each]) =>
        isNumber(each),
      )) {
        if (ids.includes(`${name} ${field}`)) continue;
        found.push(field);
        expect(definition.unit, `${name} ${field}`).to.be.a('string');
        expect(definition.placeholder, `${name} ${field}`).to.equal(`<${definition.unit}>`);
        expect(text, `${name} ${field}`).to.match(
          new RegExp(`name="${field}"[^>]*> <span class="unit">${definition.unit}<`),
        );
      }
    }

    expect(found).to.include.members([
      'pause',
      'keep',
      'concurrency',
      'canary',
      'capacity',
      'count',
      'limit',
    ]);
  });

  it('values that can be listed are picked: every other text of an operation cannot be listed', () => {
    const written: readonly string[] = [
      'name',
      'newSlug',
      'appId',
      'adminEmail',
      'firstName',
      'lastName',
      'entity',
      'network',
      'prefix',
      'text',
      'reason',
      'before',
      'activity',
      'audit',
      'people',
      'logins',
      'withoutMac',
    ];
    const isWritten = (name: string, field: string): boolean =>
      written.includes(field) ||
      ['provision slug', 'user add email', 'user find email', 'webhooks disable id'].includes(
        `${name} ${field}`,
      );

    const unlisted = [...all].flatMap(([name, { fields }]) =>
      Object.entries(fields)
        .filter(
          ([, { kind, choices, unit }]) =>
            kind === 'text' && choices === undefined && unit === undefined,
        )
        .filter(([field]) => !isWritten(name, field))
        .map(([field]) => `${name} ${field}`),
    );

    expect(unlisted).to.deep.equal([]);
  });

  it('a form shows the fields that its button needs, and folds the others away', async () => {
    const fieldsOf = async (path: string) => {
      const [before = '', more = ''] = (await opened.get(path)).text
        .split(/id="form"|<details class="more">/)
        .slice(1);
      const names = (html: string) => [
        ...new Set([...html.matchAll(/ name="(\w+)"/g)].map(([, name]) => name)),
      ];
      return {
        shown: names(before).filter(name => !['q', 'token', 'form', 'step'].includes(name ?? '')),
        more: names(more),
      };
    };

    const restore = await fieldsOf('/operations/restore?slug=acme&archive=latest');
    const all = await fieldsOf('/operations/migrate?all=on&canary=2');
    const chosen = await fieldsOf('/operations/migrate');

    expect(restore.shown).to.deep.equal(['slug', 'archive', 'reason']);
    expect(restore.more).to.include.members(['lost', 'withoutMac', 'concurrency']);
    expect(all.shown).to.deep.equal(['all', 'canary', 'reason']);
    expect(all.more).to.include.members(['slug', 'retryFailed']);
    expect(chosen.shown).to.deep.equal(['slug', 'all', 'canary', 'retryFailed', 'reason']);
  });

  it('tenants, packs, servers and users are picked in a form, and what is picked reaches the command', async () => {
    const migrate = await opened.get('/operations/migrate');
    const packs = await opened.get('/operations/packs/apply?slug=acme');
    const move = await opened.get('/operations/move?slug=acme');
    const user = await opened.get('/operations/user/disable?slug=acme');

    expect(migrate.text).to.match(/<input type="checkbox" name="slug" value="globex">/);
    expect(packs.text).to.match(/<input type="checkbox" name="packs" value="currencies">/);
    expect(move.text).to.match(/<select id="f-to"[^>]*>.*<option value="default">/);
    expect(user.text).to.match(
      new RegExp(`<select id="f-email"[^>]*>.*<option value="${world.acme.admin.email}">`),
    );
    expect(
      (await opened.submit('/operations/migrate', { slug: 'acme', step: 'command' })).text,
    ).to.include('bin/backoffice migrate acme');
    expect(
      (
        await opened.submit('/operations/packs/apply', {
          slug: 'acme',
          packs: 'units,countries',
          step: 'command',
        })
      ).text,
    ).to.include('bin/backoffice packs apply acme --packs=units,countries');
  });

  it('the values of a tenant are listed after it is chosen, with what was filled in', async () => {
    const fields = { slug: 'globex', reason: 'ticket 7', step: 'fill' };

    const { text } = await opened.submit('/operations/user/disable', fields);

    expect(text)
      .to.include(`<option value="${world.globex.admin.email}">`)
      .and.include('value="ticket 7"');
    expect(text).to.not.include('role="alert"');
  });

  it('a time is filled in as a browser has it, and is in UTC', async () => {
    const { text } = await opened.submit('/operations/logs', {
      since: '2026-11-21T14:05',
      step: 'command',
    });

    expect(text).to.include('bin/backoffice logs --since=2026-11-21T14:05Z');
    expect(text).to.match(/<input type="datetime-local" step="1" value="2026-11-21T14:05"/);
  });

  it('the refusal of an operation names the fields of its form', async () => {
    const { path } = await opened.submit('/operations/move', {
      slug: 'acme',
      to: 'default',
      back: 'on',
      step: 'plan',
    });

    const { text } = await opened.ended(path);

    expect(visibleText(text)).to.include('Give either “To server” or “Move it back”');
  });

  it('a plan of an operation that only changes something is not done if it would be another one by now', async () => {
    const plan = await opened.ended(
      (
        await opened.submit('/operations/edit', {
          slug: 'globex',
          name: 'Globex International',
          step: 'plan',
        })
      ).path,
    );
    await controlSql(world, `update tenants set name = 'Globex of others' where slug = 'globex'`);

    const stale = await opened.ended((await opened.submit(`${plan.path}/perform`, {})).path);
    const [row] = await controlSql<{ name: string }>(
      world,
      `select name from tenants where slug = 'globex'`,
    );
    await controlSql(world, `update tenants set name = 'Globex' where slug = 'globex'`);

    expect(stale.text).to.include('The plan has changed. Make it again.');
    expect(row?.name).to.equal('Globex of others');
  });

  it('a form shows the command that does the same, with each word quoted for a shell', async () => {
    const fields = { slug: 'acme', name: "Jane's; rm -rf", reason: 'new owner', step: 'command' };
    const { text } = await opened.submit('/operations/edit', fields);
    expect(text).to.include(
      'bin/backoffice edit acme --name=&#39;Jane&#39;\\&#39;&#39;s; rm -rf&#39; --reason=&#39;new owner&#39;',
    );
  });

  it('a form with wrong values is shown again, with a link from each error to its field', async () => {
    const { status, text } = await opened.submit('/operations/provision', {
      step: 'plan',
      slug: 'new',
    });
    expect(status).to.equal(422);
    expect(text)
      .to.include('role="alert"')
      .and.include('href="#f-adminEmail"')
      .and.include('value="new"');
  });

  it('an argument that is the word of another command neither runs nor shows that command', async () => {
    for (const step of ['run', 'command']) {
      expect((await opened.submit('/operations/databases', { slug: 'prune', step })).text, step)
        .to.include('is a command of its own')
        .and.not.include('bin/backoffice databases prune');
    }
  });

  it('a plan changes nothing, also when an argument begins with a hyphen; its secret reaches the command, and no page, command line or log shows it', async () => {
    const [email, password] = ['-till@acme.test', 'correct-horse-battery-9'];
    const users = () => controlSql(world, `select from users where email = '${email}'`);
    const fields = { slug: 'acme', email, password, step: 'plan' };

    const plan = await opened.ended((await opened.submit('/operations/user/add', fields)).path);
    expect(plan.text)
      .to.include('Would be added')
      .and.include('--password-stdin')
      .and.not.include(password);
    expect(await users()).to.have.length(0);

    const added = await opened.ended((await opened.submit(`${plan.path}/perform`, {})).path);
    expect(await users(), added.text).to.have.length(1);
    expect(added.text).to.include(email).and.not.include(password);

    for (const path of pages) expect((await opened.get(path)).text).to.not.include(password);
    await world.login(world.acme, { email, password });
  });

  it('an operation that locks out shows its plan, wants the name typed, runs once, and is logged with its reason', async () => {
    const planned = await opened.submit('/operations/suspend', {
      slug: 'globex',
      reason: 'unpaid',
      step: 'run',
    });
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
      opened.ended(
        (await opened.submit('/operations/user/remove', { slug: 'acme', email, step: 'plan' }))
          .path,
      );
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
    await controlSql(
      world,
      `update tenants set schema_version = '0000-before' where slug = 'acme'`,
    );
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
        .and.include('Stop them first, or add “Despite running processes” to go on.')
        .and.not.include('id="perform"');
    } finally {
      await controlSql(world, `delete from processes where host = 'elsewhere'`);
      await controlSql(
        world,
        `update tenants set schema_version = (select max(schema_version) from tenants) where slug = 'acme'`,
      );
    }
  });

  it('the page of a migration that runs leads to the page of its migration run', async () => {
    await controlSql(world, `update tenants set schema_version = null where slug = 'acme'`);

    const { text } = await opened.ended(
      (await opened.submit('/operations/migrate', { slug: 'acme', step: 'run' })).path,
    );

    const link =
      /<a href="(\/migrations\/\d+)">bin\/backoffice runs show \d+<\/a>/.exec(text)?.[1] ?? '';
    expect((await opened.get(link)).text).to.include('href="/tenants/acme"');
  });

  it('a form that is sent twice runs once, and another form, or other values, run again', async () => {
    const [admin] = await controlSql<{ email: string }>(
      world,
      `select email from users where tenant_id = (select id from tenants where slug = 'acme') order by id limit 1`,
    );

    const fields = {
      slug: 'acme',
      email: admin?.email ?? '',
      name: 'till',
      step: 'run',
      form: 'once',
    };

    const add = async (more = {}) =>
      (await opened.submit('/operations/client/add', { ...fields, ...more })).path;

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
      expect(text)
        .to.include('It is done, and found something.')
        .and.include('TEMPORARY on database');
      expect(text).to.include('class="state warn"').and.not.include('It has failed');

      const findings = (await opened.get('/findings?tenant=acme')).text;
      expect(findings)
        .to.include('Looked')
        .and.include('TEMPORARY on database')
        .and.include('CREATE INDEX by_hand ON public.countries');

      const id = /name="finding" value="(\w+)"/.exec(findings)?.[1] ?? '';
      expect((await opened.get('/tenants/acme')).text).to.include(
        `href="/findings?id=${id}#${id}"`,
      );
      expect(findings).to.include(
        `/operations/doctor?fix=on&#38;finding=${id}">bin/backoffice doctor --fix ${id}</a>`,
      );
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
    await controlSql(
      world,
      `update tenants set name = 'BEGIN' || repeat('x', 30000) || 'END' where slug = 'globex'`,
    );

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

      const rows = (await opened.get(`${list.path}/output`)).text
        .split('\n')
        .filter(row => row.startsWith('large'));
      expect(rows).to.have.length(300);

      const shown = await opened.ended(
        (await opened.submit('/operations/show', { slug: 'globex', step: 'run' })).path,
      );
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

  it('the refusal of an operation is shown in the words of the command line', async () => {
    const { path } = await opened.submit('/operations/resume', { slug: 'nobody', step: 'plan' });
    expect((await opened.ended(path)).text)
      .to.include('There is no tenant nobody')
      .and.not.include('id="perform"');
  });
});
