import { mkdtemp, rm } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import type pg from 'pg';
import { catalogue } from '../../../src/operator/cli/catalogue.ts';
import { operationsOf } from '../../../src/operator/command/operation.ts';
import { withheld } from '../../../src/operator/console/offered.ts';
import { withConnection } from '../../../src/postgres/connection.ts';
import { controlSql } from '../../auth/sample-users.ts';
import { eventually } from '../../support/eventually.ts';
import { isAlive, seeProcesses } from '../../support/processes.ts';
import { runCommand } from '../../support/run-command.ts';
import { sql, useWorld } from '../../support/world.ts';
import { type OpenConsole, openConsole } from './console-client.ts';

const pages = [
  ...['/', '/tenants', '/tenants?q=admin@acme.test', '/tenants/acme', '/rollouts', '/recovery', '/recovery/acme'],
  ...['/findings', '/capacity', '/log', '/operations'],
];
const script = '<script>alert(1)</script>';

describe('console', () => {
  const world = useWorld();
  let opened: OpenConsole;
  before(async () => {
    opened = await openConsole(world.environment, ['--no-browser']);
  });
  after(async () => {
    expect(await opened.stop()).to.equal(0);
  });

  const statusOf = async (slug: string): Promise<string | undefined> => {
    const [row] = await controlSql<{ status: string }>(world, `select status from tenants where slug = '${slug}'`);
    return row?.status;
  };
  const lastAction = async () => {
    const [row] = await controlSql<{ operator: string; command: string; reason: string | null }>(
      world,
      'select operator, command, reason from operator_actions order by id desc limit 1',
    );
    return row;
  };

  describe('access', () => {
    it('the printed address of the console works once, and without its cookie every page is refused', async () => {
      expect((await fetch(opened.url)).status).to.equal(403);
      for (const path of [...pages, '/operations/suspend', '/runs/x', '/nowhere']) {
        const response = await fetch(opened.origin + path, { headers: { Cookie: `${opened.cookie}x` } });
        expect(response.status, path).to.equal(403);
        expect(await response.text(), path).to.not.include('acme');
      }
    });

    it('a host of another name, as with DNS rebinding, gets no page', async () => {
      // fetch sends no other Host than that of the address
      const response = await new Promise<string>(resolve => {
        const socket = connect(Number(new URL(opened.origin).port), '127.0.0.1');
        let text = '';
        socket.on('data', data => (text += data)).on('close', () => resolve(text));
        socket.write(`GET / HTTP/1.1\r\nHost: evil.test\r\nCookie: ${opened.cookie}\r\nConnection: close\r\n\r\n`);
      });
      expect(response)
        .to.match(/^HTTP\/1.1 403/)
        .and.not.include('Needs attention');
    });

    it('a form that another origin sends, or that has no token of its page, changes nothing', async () => {
      const fields = { slug: 'acme', step: 'plan' };
      const attacks: Record<string, string>[] = [
        { Origin: 'http://evil.test' },
        { Origin: 'null' },
        { Origin: '' },
        { 'Sec-Fetch-Site': 'cross-site' },
        { 'Sec-Fetch-Site': 'same-site' },
      ];
      for (const headers of attacks)
        expect((await opened.submit('/operations/suspend', fields, headers)).status).to.equal(403);
      for (const token of ['', 'x'.repeat(43)])
        expect((await opened.submit('/operations/suspend', { ...fields, token })).text).to.include('Open it again');
      expect((await opened.get('/log')).text).to.include('This console has run nothing yet');
    });

    it('no page can be framed, loads anything of another origin, or runs inline code', async () => {
      for (const path of pages) {
        const { status, headers, text } = await opened.get(path);
        expect(status, path).to.equal(200);
        expect(headers.get('content-security-policy'))
          .to.include("frame-ancestors 'none'")
          .and.include("script-src 'self'");
        expect(headers.get('cache-control')).to.equal('no-store');
        expect(text).to.not.match(/ style=| on\w+=|<script>|src="http/);
        expect(text.length, path).to.be.lessThan(60_000);
      }
    });

    it('a thousand connections that send nothing shut nobody out', async () => {
      const port = Number(new URL(opened.origin).port);
      const sockets = Array.from({ length: 1_000 }, () => connect(port, '127.0.0.1').on('error', () => {}));
      await Promise.all(
        sockets.map(socket => new Promise(resolve => socket.once('connect', resolve).once('close', resolve))),
      );
      expect((await opened.get('/')).status).to.equal(200);
      for (const socket of sockets) socket.destroy();
    });

    it('a console that strangers could reach, or whose header anybody could send, does not start', async () => {
      const refused: [string[], RegExp][] = [
        [['--host', '0.0.0.0'], /Everybody who reaches 0\.0\.0\.0 could use the console/],
        [['--user-header', 'X-User'], /Name the proxy whose header is trusted/],
        [['--trusted-proxy', '10.0.0.7'], /Name the header/],
        [['--trusted-proxy', '0.0.0.0/0', '--user-header', 'X-User'], /not the address of a proxy/],
        [['--read-only', '--allow', 'suspend'], /either --read-only or --allow/],
        [['--allow', 'fly'], /fly, which is neither a command/],
        [['--allow', 'constructor'], /constructor, which is neither a command/],
      ];
      for (const [args, reason] of refused) {
        const { code, stderr } = await runCommand('scripts/backoffice.ts', ['console', ...args], world.environment);
        expect({ args, code }).to.deep.equal({ args, code: 2 });
        expect(stderr).to.match(reason);
      }
    });
  });

  describe('commands', () => {
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
      const fields = { slug: 'acme', name: "Jane's; rm -rf", because: 'new owner', step: 'command' };
      const { text } = await opened.submit('/operations/edit', fields);
      expect(text).to.include(
        'npx backoffice edit acme --name=&#39;Jane&#39;\\&#39;&#39;s; rm -rf&#39; --reason=&#39;new owner&#39;',
      );
    });

    it('an operation that locks out shows its plan, wants the name typed, runs once, and is logged with its reason', async () => {
      const planned = await opened.submit('/operations/suspend', { slug: 'globex', because: 'unpaid', step: 'run' });
      const plan = await opened.ended(planned.path);
      expect(plan.text).to.include('globex will not be served until it is resumed');
      expect(plan.text).to.match(/slug=globex&(amp;|#38;)because=unpaid">Change the values/);
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
      expect(await lastAction()).to.deep.include({ command: 'suspend', reason: 'unpaid' });
      const resumed = await opened.submit('/operations/resume', { slug: 'globex', step: 'run' });
      expect((await opened.ended(resumed.path)).text).to.include('globex is active.');
    });

    it('a plan that no longer holds is not done, and a login in the meantime does not change a plan', async () => {
      const email = 'leaver@acme.test';
      const user = { slug: 'acme', email, password: 'correct-horse-battery-9' };
      await opened.ended((await opened.submit('/operations/user/add', { ...user, step: 'run' })).path);
      const plan = async () =>
        opened.ended((await opened.submit('/operations/user/remove', { slug: 'acme', email, step: 'plan' })).path);
      const perform = async ({ path }: { path: string }) =>
        opened.ended((await opened.submit(`${path}/perform`, { typed: email })).path);
      const stale = await plan();
      const changed = await runCommand(
        'scripts/backoffice.ts',
        ['user', 'role', 'acme', email, 'Administrator'],
        world.environment,
      );
      expect(changed.code).to.equal(0);
      expect((await perform(stale)).text).to.include('The plan has changed. Make it again.');
      await world.login(world.acme, user);
      const fresh = await plan();
      await world.login(world.acme, user);
      expect((await perform(fresh)).text).to.include(`${email} is removed`);
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

    it('a check that finds something is done, and has not failed', async () => {
      const { database } = world.acme;
      await controlSql(world, `grant temporary on database "${database}" to "${database}"`);
      try {
        const { text } = await opened.ended((await opened.submit('/operations/doctor', { step: 'run' })).path);
        expect(text).to.include('It is done, and found something.').and.include('TEMPORARY on database');
        expect(text).to.include('class="state warn"').and.not.include('It has failed');
      } finally {
        await controlSql(world, `revoke temporary on database "${database}" from "${database}"`);
      }
    });

    it('a large result says what is left out, keeps its end, and links to all that is kept', async () => {
      const globex = `(select id from tenants where slug = 'globex')`;
      const insert = `insert into roles (tenant_id, name) select ${globex}, 'large ' || n from generate_series(1, 3000) n`;
      await controlSql(world, insert);
      await controlSql(world, `update tenants set name = 'BEGIN' || repeat('x', 30000) || 'END' where slug = 'globex'`);
      try {
        const list = await opened.ended(
          (await opened.submit('/operations/role/list', { slug: 'globex', step: 'run' })).path,
        );
        const [row] = await controlSql<{ count: number }>(
          world,
          `select count(*)::int from roles where tenant_id = ${globex}`,
        );
        const total = row?.count ?? 0;
        const lost = `${(total - 2_000).toLocaleString('en')}`;
        expect(list.text)
          .to.include(`${(total - 200).toLocaleString('en')} further rows are not shown, of which ${lost} are not kept`)
          .and.include(`href="${list.path}/output"`);
        expect((await opened.get(`${list.path}/output`)).text).to.include(`(${lost} further rows are not kept)`);
        const shown = await opened.ended(
          (await opened.submit('/operations/show', { slug: 'globex', step: 'run' })).path,
        );
        expect(shown.text)
          .to.match(/BEGINx+\n… \([\d,]+ characters are left out\) …\nx+END/)
          .and.include(`href="${shown.path}/output"`);
        expect((await opened.get(`${shown.path}/output`)).text).to.match(/BEGINx{30000}END/);
      } finally {
        await controlSql(world, `delete from roles where name like 'large %'`);
        await controlSql(world, `update tenants set name = 'Globex' where slug = 'globex'`);
      }
    });

    it('a form with wrong values is shown again, with a link from each error to its field', async () => {
      const { status, text } = await opened.submit('/operations/provision', { step: 'plan', slug: 'new' });
      expect(status).to.equal(422);
      expect(text).to.include('role="alert"').and.include('href="#f-adminEmail"').and.include('value="new"');
    });

    it('what an operation refuses is shown in the words of the command line', async () => {
      const { path } = await opened.submit('/operations/resume', { slug: 'nobody', step: 'plan' });
      expect((await opened.ended(path)).text)
        .to.include('There is no tenant nobody')
        .and.not.include('id="perform"');
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
      ])
        expect((await opened.get(path)).text, path).to.not.include(script);
      const { path } = await opened.submit('/operations/resume', { slug: script, because: script, step: 'plan' });
      expect((await opened.ended(path)).text).to.not.include(script);
      expect((await opened.get('/tenants/acme')).text).to.include('&#60;script&#62;');
    });

    it('a plan changes nothing when an argument begins with a hyphen', async () => {
      const fields = { slug: 'acme', role: '-x', permissions: 'orders.read', step: 'plan' };
      const { path } = await opened.submit('/operations/role/add', fields);
      const { text } = await opened.ended(path);
      expect(await controlSql(world, `select from roles where name = '-x'`), text).to.have.length(0);
      await opened.ended((await opened.submit(`${path}/perform`, {})).path);
      expect(await controlSql(world, `select permissions from roles where name = '-x'`)).to.deep.equal([
        { permissions: ['orders.read'] },
      ]);
    });

    it('a secret that is filled in reaches its command, and no page, command line or log shows it', async () => {
      const password = 'correct-horse-battery-9';
      const fields = { slug: 'acme', email: 'till@acme.test', password, step: 'plan' };
      const plan = await opened.ended((await opened.submit('/operations/user/add', fields)).path);
      expect(plan.text).to.include('Would be added').and.include('--password-stdin').and.not.include(password);
      const added = await opened.ended((await opened.submit(`${plan.path}/perform`, {})).path);
      expect(added.text).to.include('till@acme.test').and.not.include(password);
      for (const path of pages) expect((await opened.get(path)).text).to.not.include(password);
      await world.login(world.acme, { email: 'till@acme.test', password });
    });

    it('a run goes on without its browser, and its events and its page show it when it is opened again', async () => {
      const { path } = await opened.submit('/operations/doctor', { step: 'run' });
      const gone = new AbortController();
      const headers = { Cookie: opened.cookie };
      const first = await fetch(`${opened.origin}${path}/events`, { headers, signal: gone.signal });
      await first.body?.getReader().read();
      gone.abort();
      const events = await (await fetch(`${opened.origin}${path}/events`, { headers })).text();
      expect(events)
        .to.match(/^event: run\ndata: \{/)
        .and.include('"isEnded":true');
      expect((await opened.get(path)).text).to.include('data-ended');
      expect((await opened.get('/findings')).text).to.include('Looked');
    });
  });

  it('pages open no connection to a tenant database', async () => {
    const names = [world.acme, world.globex];
    const allow = (isAllowed: boolean) =>
      Promise.all(
        names.map(({ database }) => controlSql(world, `alter database "${database}" allow_connections ${isAllowed}`)),
      );
    await sql(world.acme, 'select');
    await allow(false);
    try {
      for (const path of pages) expect((await opened.get(path)).status, path).to.equal(200);
    } finally {
      await allow(true);
    }
  });

  it('a read-only console shows everything and runs nothing; another one runs what it was allowed', async () => {
    const readOnly = await openConsole(world.environment, ['--no-browser', '--read-only']);
    const { status, text } = await readOnly.get('/operations/resume?slug=acme');
    expect(status).to.equal(200);
    expect(text).to.include('This console does not run it').and.not.include('value="plan"');
    const refused = await readOnly.submit('/operations/resume', { slug: 'acme', because: 'ticket 9', step: 'run' });
    expect(refused.text).to.include('does not run resume');
    expect(refused.text, 'what was typed stays').to.include('value="acme"').and.include('value="ticket 9"');
    expect((await readOnly.submit('/operations/list', { step: 'run' })).text).to.include('does not run list');
    await readOnly.stop();
    const support = await openConsole(world.environment, ['--no-browser', '--allow', 'support,resume']);
    expect((await support.submit('/operations/suspend', { slug: 'acme', step: 'plan' })).text).to.include(
      'does not run',
    );
    for (const [path, fields] of Object.entries({ '/operations/resume': {}, '/operations/session/list': {} }))
      expect((await support.submit(path, { slug: 'acme', step: 'run', ...fields })).path, path).to.match(/^\/runs\//);
    await support.stop();
  });

  it('an argument that is the word of another command neither runs nor shows that command', async () => {
    for (const step of ['run', 'command'])
      expect((await opened.submit('/operations/databases', { slug: 'prune', step })).text, step)
        .to.include('is a command of its own')
        .and.not.include('npx backoffice databases prune');
  });

  it('a team is known by the header of its proxy only, gives a reason, and is named in the log', async () => {
    const args = ['--trusted-proxy', '127.0.0.1', '--user-header', 'X-Forwarded-Email'];
    const team = await openConsole(world.environment, args, { 'X-Forwarded-Email': 'jane@example.com' });
    expect((await fetch(team.origin)).status).to.equal(403);
    for (const name of ['a@b.test, jane@example.com', ' '])
      expect((await team.get('/', { 'X-Forwarded-Email': name })).status, name).to.equal(403);
    const fields = { slug: 'acme', step: 'run' };
    expect((await team.submit('/operations/refresh', fields)).text).to.include('Say why');
    const { path } = await team.submit('/operations/refresh', { ...fields, because: 'ticket 7' });
    expect((await team.ended(path)).text).to.include('jane@example.com');
    const action = await lastAction();
    expect(action).to.deep.include({ command: 'refresh', reason: 'ticket 7' });
    expect(action?.operator).to.match(/^jane@example\.com \(/);

    const secret = { slug: 'acme', email: 'new@acme.test', because: 'ticket 8' };
    const plan = await team.ended((await team.submit('/operations/user/add', { ...secret, step: 'plan' })).path);
    const run = await team.ended((await team.submit(`${plan.path}/perform`, {})).path);
    expect(run.text, 'the password is shown to the one who made the user').to.match(/password/i);
    const joe = { 'X-Forwarded-Email': 'joe@example.com' };
    expect((await team.get('/log', joe)).text).to.include(run.path);
    for (const path of [run.path, `${run.path}/output`, `${run.path}/events`, plan.path]) {
      const { text } = await team.get(path, joe);
      expect(text, path).to.include('alone sees its result').and.include('jane@example.com');
      expect(text, path).to.not.match(/password/i);
    }
    const others = await team.get(run.path, joe);
    expect([others.status, others.text.includes('It is done.')]).to.deep.equal([200, true]);
    await team.stop();
    const elsewhere = ['--trusted-proxy', '10.0.0.7', '--user-header', 'X-Forwarded-Email'];
    const forged = await openConsole(world.environment, elsewhere, { 'X-Forwarded-Email': 'jane@example.com' });
    expect((await forged.get('/')).status).to.equal(403);
    await forged.stop();
  });

  it('a command that is ended early, by a button and then with its console, finishes what it has begun', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'archives-'));
    const environment = { ...world.environment, BACKUP_TARGET: folder };
    expect((await runCommand('scripts/tenant.ts', ['backup', 'init'], environment)).code).to.equal(0);
    const ending = await openConsole(environment, ['--no-browser']);
    let stopped: Promise<number | null> | undefined;
    await withConnection(world.acme.adminUrl, async client => {
      await client.query('begin; lock table countries in access exclusive mode');
      const { path } = await ending.submit('/operations/backup/run', { slug: 'acme', step: 'run' });
      await waitingFor(client, 'countries');
      expect((await ending.submit(`${path}/cancel`, {})).text)
        .to.include('It ends early.')
        .and.not.include('id="cancel"');
      const cancelledAt = performance.now();
      await eventually(() => performance.now() - cancelledAt > 1_100); // two signals within 1 s count as one
      stopped = ending.stop();
      await eventually(async () => (await fetch(ending.origin).catch(() => undefined)) === undefined);
    });
    expect(await stopped).to.equal(0);
    const listed = await runCommand('scripts/tenant.ts', ['backup', 'list', 'acme', '--json'], environment);
    expect(JSON.parse(listed.stdout)).to.have.length(1);
    await rm(folder, { recursive: true, force: true });
  });

  it('a command whose console was killed goes on, and ends early without a loss when it gets a signal', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'archives-'));
    const environment = { ...world.environment, BACKUP_TARGET: folder };
    expect((await runCommand('scripts/tenant.ts', ['backup', 'init'], environment)).code).to.equal(0);
    const killed = await openConsole(environment, ['--no-browser']);
    await withConnection(world.acme.adminUrl, async client => {
      await client.query('begin; lock table countries in access exclusive mode');
      await killed.submit('/operations/backup/run', { slug: 'acme', step: 'run' });
      await waitingFor(client, 'countries');
      const command = (await seeProcesses()).find(({ parent }) => parent === killed.process.pid);
      killed.process.kill('SIGKILL');
      await eventually(async () => (await fetch(killed.origin).catch(() => undefined)) === undefined);
      process.kill(command?.pid ?? 0, 'SIGTERM');
    });
    const lastState = async () => {
      const rows = await controlSql<{ state: string }>(
        world,
        `select state from operator_actions where command = 'backup run' order by id desc limit 1`,
      );
      return rows[0]?.state;
    };
    await eventually(async () => (await lastState()) === 'done');
    await rm(folder, { recursive: true, force: true });
  });

  it('a signal ends the console when the commands that it runs have ended', async () => {
    const ending = await openConsole(world.environment, ['--no-browser']);
    await ending.submit('/operations/doctor', { step: 'run' });
    expect(await ending.stop()).to.equal(0);
    const left = await eventually(async () => {
      const rows = await controlSql<{ pid: number }>(
        world,
        `select pid from processes where kind = 'command' and seen_at > now() - interval '5 s'`,
      );
      return rows.filter(({ pid }) => isAlive(pid)).length === 0;
    });
    expect(left).to.equal(true);
  });
});

/** Waits until a session waits for a lock of a table. */
async function waitingFor(client: pg.Client, table: string): Promise<void> {
  await eventually(async () => {
    const { rows } = await client.query('select from pg_locks where not granted and relation = $1::regclass', [table]);
    return rows.length > 0;
  });
}
