import { connect } from 'node:net';
import { expect } from 'chai';
import { runCommand } from '../../support/run-command.ts';
import { useWorld } from '../../support/world.ts';
import { lastAction, openConsole, pages, useConsole } from './console-client.ts';

describe('console: access', () => {
  const world = useWorld();
  const opened = useConsole(world);

  it('the printed address of the console works once, and without its cookie every page is refused', async () => {
    expect((await fetch(opened.url)).status).to.equal(403);
    for (const path of [...pages, '/operations/suspend', '/runs/x', '/nowhere']) {
      const response = await fetch(opened.origin + path, {
        headers: { Cookie: `${opened.cookie}x` },
      });
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
      socket.write(
        `GET / HTTP/1.1\r\nHost: evil.test\r\nCookie: ${opened.cookie}\r\nConnection: close\r\n\r\n`,
      );
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

    for (const headers of attacks) {
      expect((await opened.submit('/operations/suspend', fields, headers)).status).to.equal(403);
    }

    for (const token of ['', 'x'.repeat(43)]) {
      const { status, text } = await opened.submit('/operations/suspend', { ...fields, token });
      expect(status).to.equal(422);
      expect(text)
        .to.include('The form is of an earlier console')
        .and.include('value="acme" selected');
    }

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
    const sockets = Array.from({ length: 1_000 }, () =>
      connect(port, '127.0.0.1').on('error', () => {}),
    );
    await Promise.all(
      sockets.map(
        socket => new Promise(resolve => socket.once('connect', resolve).once('close', resolve)),
      ),
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
      const { code, stderr } = await runCommand(
        'scripts/backoffice.ts',
        ['console', ...args],
        world.environment,
      );
      expect({ args, code }).to.deep.equal({ args, code: 2 });
      expect(stderr).to.match(reason);
    }
  });

  it('a read-only console shows everything, and runs nothing', async () => {
    const readOnly = await openConsole(world.environment, ['--no-browser', '--read-only']);

    const { status, text } = await readOnly.get('/operations/resume?slug=acme');
    expect(status).to.equal(200);
    expect(text)
      .to.include('This console does not run it')
      .and.include('value="plan"')
      .and.not.include('value="run"');

    const plan = await readOnly.ended(
      (await readOnly.submit('/operations/suspend', { slug: 'acme', step: 'plan' })).path,
    );
    expect(plan.text)
      .to.include('will not be served until it is resumed')
      .and.not.include('id="perform"');
    expect(plan.text).to.include('This console does not run suspend');

    expect((await readOnly.get('/migrations')).text)
      .to.include('/operations/migrate')
      .and.not.include('class="do"');

    const refused = await readOnly.submit('/operations/resume', {
      slug: 'acme',
      reason: 'ticket 9',
      step: 'run',
    });
    expect(refused.text).to.include('does not run resume');
    expect(refused.text, 'what was typed stays')
      .to.include('value="acme"')
      .and.include('value="ticket 9"');

    expect((await readOnly.submit('/operations/list', { step: 'run' })).text).to.include(
      'does not run list',
    );

    await readOnly.stop();
  });

  it('a team is known by the header of its proxy only, runs what it was allowed, gives a reason, and is named in the log', async () => {
    const args = [
      '--trusted-proxy',
      '127.0.0.1',
      '--user-header',
      'X-Forwarded-Email',
      '--allow',
      'support,refresh',
    ];
    const team = await openConsole(world.environment, args, {
      'X-Forwarded-Email': 'jane@example.com',
    });

    expect((await fetch(team.origin)).status).to.equal(403);
    for (const name of ['a@b.test, jane@example.com', ' ']) {
      expect((await team.get('/', { 'X-Forwarded-Email': name })).status, name).to.equal(403);
    }

    expect(
      (await team.submit('/operations/suspend', { slug: 'acme', step: 'run' })).text,
    ).to.include('does not run');
    expect((await team.get('/operations/refresh?slug=acme')).text).to.not.include(
      'does not run it',
    );

    const fields = { slug: 'acme', email: 'new@acme.test', step: 'run' };
    expect((await team.submit('/operations/user/add', fields)).text).to.include(
      'Reason: Fill this in',
    );

    const { path } = await team.submit('/operations/user/add', { ...fields, reason: 'ticket 7' });
    const run = await team.ended(path);
    expect(run.text).to.include('jane@example.com');
    expect(run.text, 'the password is shown to the one who made the user').to.match(/password/i);

    const action = await lastAction(world);
    expect(action).to.deep.include({ command: 'user add', reason: 'ticket 7' });
    expect(action?.operator).to.match(/^jane@example\.com \(/);

    const joe = { 'X-Forwarded-Email': 'joe@example.com' };
    expect((await team.get('/log', joe)).text).to.include(path);
    for (const own of [path, `${path}/output`]) {
      const { text } = await team.get(own, joe);
      expect(text, own).to.include('alone sees its result').and.include('jane@example.com');
      expect(text, own).to.not.match(/password/i);
    }

    const others = await team.get(path, joe);
    expect(others.status).to.equal(200);
    expect(others.text).to.include('It is done.');
    await team.stop();

    const elsewhere = ['--trusted-proxy', '10.0.0.7', '--user-header', 'X-Forwarded-Email'];
    const forged = await openConsole(world.environment, elsewhere, {
      'X-Forwarded-Email': 'jane@example.com',
    });
    expect((await forged.get('/')).status).to.equal(403);
    await forged.stop();
  });
});
