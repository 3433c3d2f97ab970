import { expect } from 'chai';
import { eventually } from '../../support/eventually.ts';
import { linkIn, readable, startMailServer } from '../../support/mail-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { use } from '../../support/use.ts';
import { controlSql, createWorld, type TestTenant } from '../../support/world.ts';
import { addSampleUser } from '../auth/sample-users.ts';
import { invitation, usersPath } from '../people/people-world.ts';

const password = 'three quiet rivers';

describe('pages that links in mails lead to', () => {
  const mail = use(startMailServer);
  const world = use(() => createWorld({ SMTP_URL: mail.url }));

  before(async () => {
    await controlSql(
      world,
      `update tenants set name = 'Acme & <Sons>', features = '{selfRegistration}' where id = ?`,
      [world.acme.id],
    );
    await eventually(
      async () =>
        (await (await world.login(world.acme)).get('/api/v1/auth/me')).body.features.length > 0,
    );
  });

  /** Requests a mail, waits for it, and returns its link, on the address of the world. */
  async function linkOf(email: string, count = 1): Promise<URL> {
    const link = await eventually(() => linkIn(mail.messagesTo(email)[count - 1]?.content));
    const { pathname, search } = new URL(link);
    return new URL(pathname + search, world.url);
  }
  let people = 0;
  const newAddress = (): string => `person${++people}@pages.test`;

  async function invite(
    tenant: TestTenant,
    email = newAddress(),
  ): Promise<{ email: string; link: URL }> {
    const admin = await world.login(tenant);
    const invited = await admin.post(usersPath, invitation({ Email: email }));
    expect(invited.status).to.equal(201);

    return { email, link: await linkOf(email) };
  }
  async function open(
    link: URL | string,
  ): Promise<{ status: number; text: string; headers: Headers }> {
    const response = await fetch(link);
    return { status: response.status, text: await response.text(), headers: response.headers };
  }
  async function send(
    link: URL,
    fields: Record<string, string>,
    url = world.url,
  ): Promise<{ status: number; text: string }> {
    const { tenant = '', token = '' } = Object.fromEntries(link.searchParams);
    const body = new URLSearchParams({
      ...(tenant && { tenant }),
      ...(token && { token }),
      ...fields,
    });
    const response = await fetch(new URL(link.pathname, url), { method: 'POST', body });
    return { status: response.status, text: await response.text() };
  }
  const logIn = async (tenant: TestTenant, email: string) =>
    (
      await world.anonymous.post(
        '/api/v1/auth/login',
        { email, password },
        { 'X-Tenant': tenant.guid },
      )
    ).status;
  const chosen = { password, repeated: password };

  it('an invited person opens the link, sets a password, and logs in; the link works once', async () => {
    const { email, link } = await invite(world.acme);
    const opened = await open(link);
    expect(opened.status).to.equal(200);
    expect(opened.text)
      .to.include(email)
      .and.include('Acme &#38; &#60;Sons&#62;')
      .and.not.include('<Sons>');
    expect((await open(link)).status, 'opening it uses nothing').to.equal(200);
    const done = await send(link, chosen);
    expect(done.status).to.equal(200);
    expect(/<h1>(.*)<\/h1>/.exec(done.text)?.[1]).to.equal('Your password is set');
    expect(await logIn(world.acme, email)).to.equal(200);
    expect(await logIn(world.globex, email)).to.equal(401);

    const other = { password: 'another long password', repeated: 'another long password' };
    for (const again of [await open(link), await send(link, other)]) {
      expect(again.status).to.equal(400);
      expect(again.text)
        .to.include('This link does not work any more')
        .and.include('You can log in with that password');
    }
    expect(await logIn(world.acme, email), 'the password that was set').to.equal(200);
  });

  it('a person who forgot the password requests a mail on a page, and sets a new one by its link', async () => {
    const { email, link: invitation } = await invite(world.globex);
    await send(invitation, { password: 'the former password', repeated: 'the former password' });

    const request = new URL(`/reset?tenant=${world.globex.guid}`, world.url);
    expect((await open(request)).text).to.include('Forgot your password?');

    const known = await send(request, { email: email.toUpperCase() });
    const unknown = await send(request, { email: 'nobody@pages.test' });
    expect(known.status).to.equal(200);
    expect(unknown.text.replace('nobody@pages.test', email)).to.equal(known.text);

    const link = await linkOf(email, 2);
    expect(link.pathname).to.equal('/reset');
    expect((await send(link, chosen)).status).to.equal(200);
    expect(await logIn(world.globex, email)).to.equal(200);

    expect((await send(request, { email: 'no address' })).text).to.include(
      'This is not an e-mail address.',
    );
  });

  it('entering the address confirms a registration; neither opening its link nor pressing its button does', async () => {
    const email = newAddress();
    const person = { email, password, firstName: 'Nora', lastName: 'Newman' };
    await world.anonymous.post('/api/v1/auth/register', person, { 'X-Tenant': world.acme.guid });
    const link = await linkOf(email);
    expect((await open(link)).text)
      .to.include('Enter the address')
      .and.not.include(email);
    expect(await logIn(world.acme, email)).to.equal(401);

    for (const pressed of [
      await send(link, {}),
      await send(link, { email: 'somebody@pages.test' }),
    ]) {
      expect(pressed.status).to.equal(400);
      expect(pressed.text)
        .to.include('This is not the address that the mail was sent to.')
        .and.not.include(email);
    }
    expect(await logIn(world.acme, email)).to.equal(401);

    expect((await send(link, { email: ` ${email.toUpperCase()} ` })).text).to.include(
      'Your address is confirmed',
    );
    expect(await logIn(world.acme, email)).to.equal(200);
  });

  it('a form with an unsuitable password says in words what is wrong, and the link stays valid', async () => {
    const { email, link } = await invite(world.acme);

    for (const [fields, words] of [
      [{ password: 'short', repeated: 'short' }, 'too short: use at least 15 characters'],
      [{ password: 'Password1234567', repeated: 'Password1234567' }, 'guessed first'],
      [{ password: `${email}!`, repeated: `${email}!` }, 'names that belong to your account'],
      [{ password, repeated: 'another password' }, 'The two passwords differ'],
      [{}, 'too short'],
    ] as [Record<string, string>, string][]) {
      const { status, text } = await send(link, fields);
      expect(status).to.equal(400);
      expect(text)
        .to.include(words)
        .and.include('<title>Error: ')
        .and.include('aria-invalid')
        .and.not.include(password);
    }

    expect((await open(link)).text).to.include('At least 15 characters.');
    expect((await send(link, chosen)).status).to.equal(200);
    expect(await logIn(world.acme, email)).to.equal(200);
  });

  it('a link works for its own tenant and action only, and not for a suspended tenant', async () => {
    const { link } = await invite(world.acme);

    const foreign = new URL(link);
    foreign.searchParams.set('tenant', world.globex.guid);
    const asReset = new URL(link);
    asReset.pathname = '/reset';

    for (const wrong of [
      foreign,
      asReset,
      new URL('/accept?tenant=x&token=y', world.url),
      new URL('/accept', world.url),
    ]) {
      expect((await open(wrong)).status, wrong.href).to.equal(400);
      expect((await send(wrong, chosen)).status, wrong.href).to.equal(400);
    }

    await controlSql(world, `update tenants set status = 'suspended' where id = ?`, [
      world.acme.id,
    ]);
    await eventually(async () => (await open(link)).status === 400);

    expect((await send(link, chosen)).status).to.equal(400);

    await controlSql(world, `update tenants set status = 'active' where id = ?`, [world.acme.id]);
    await eventually(async () => (await open(link)).status === 200);
  });

  it('pages run no script, load nothing foreign, send no referrer, are not stored, and their tokens are in no log', async () => {
    const { link } = await invite(world.acme);
    const { headers, text } = await open(link);

    expect(headers.get('content-security-policy'))
      .to.include("default-src 'none'")
      .and.not.include('script-src');
    expect(headers.get('referrer-policy')).to.equal('no-referrer');
    expect(headers.get('cache-control')).to.equal('no-store');
    expect(headers.get('set-cookie')).to.equal(null);
    expect(text).not.to.match(/<script|style=|https?:\/\//);

    await send(link, chosen);
    const logText = await eventually(() => {
      const lines = world.logs.join('');
      return lines.includes('"method":"POST","route":"/accept"') && lines;
    });

    expect(logText).not.to.include(link.searchParams.get('token')).and.not.include(password);
  });

  it('forms are limited together with the account routes of the API, and the page says how long to wait', async () => {
    const other = await world.startAnotherServer({ RATE_LIMIT_ACCOUNT: '2/15m' });
    const { link } = await invite(world.acme);
    const reset = { email: 'nobody@pages.test' };

    await fetch(`${other.url}/api/v1/auth/reset-password`, {
      method: 'POST',
      headers: { 'X-Tenant': world.acme.guid, 'Content-Type': 'application/json' },
      body: JSON.stringify(reset),
    });

    expect((await send(link, { password: 'short' }, other.url)).status).to.equal(400);

    const { status, text } = await send(link, chosen, other.url);
    expect(status).to.equal(429);
    expect(text).to.include('Too many attempts').and.include('15 minutes');

    expect((await open(link)).status, 'not used').to.equal(200);
  });

  it('mails are text and HTML in the name of the tenant, and HTML in a name stays text', async () => {
    const { email } = await invite(world.acme);
    const content = mail.messagesTo(email)[0]?.content;
    const text = readable(content);

    expect(text).to.match(/^From: "Acme & <Sons>" <no-reply@localhost>$/m);
    expect(text).to.match(/^Content-Type: multipart\/alternative/m);
    expect(text).to.match(/^An administrator of Acme & <Sons> invites you/m);
    expect(text).to.include('An administrator of Acme &#38; &#60;Sons&#62; invites you');
    expect(text.match(/token=[\w-]{22}\.[\w-]{43}/g)?.length, 'text, button and address').to.equal(
      3,
    );
  });

  it('APP_URL replaces the pages in all links, and the address of a tenant replaces APP_URL in its own', async () => {
    const other = await createWorld({
      SMTP_URL: mail.url,
      APP_URL: 'https://app.example.com/{action}#{tenant}/{token}',
    });
    const { url } = other;

    const emails = new Map<TestTenant, string>();
    for (const tenant of [other.acme, other.globex]) {
      const { email } = await addSampleUser(other, tenant, { email: newAddress() });
      emails.set(tenant, email);
    }

    /** Requests a reset, and returns the address in the mail of it. */
    const resetLink = async (tenant: TestTenant): Promise<string> => {
      const email = emails.get(tenant) ?? '';
      const earlier = mail.messagesTo(email).length;
      const headers = { 'X-Tenant': tenant.guid, 'Content-Type': 'application/json' };
      const body = JSON.stringify({ email });
      await fetch(`${url}/api/v1/auth/reset-password`, { method: 'POST', headers, body });
      return eventually(
        () => /^https:\S+$/m.exec(readable(mail.messagesTo(email)[earlier]?.content))?.[0],
      );
    };

    const edit = (...values: string[]) =>
      runCommand('scripts/tenant.ts', ['edit', 'globex', ...values], other.environment);

    expect((await edit('--app-url', 'https://globex.example.com/{action}')).stderr).to.include(
      '{token}',
    );
    const edited = await edit(
      '--app-url',
      'https://globex.example.com/{action}?t={token}',
      '--json',
    );
    expect(JSON.parse(edited.stdout).changes[0]).to.include({ field: 'appUrl', from: 'none' });

    const token = '[\\w-]{22}\\.[\\w-]{43}$';
    expect(await resetLink(other.acme)).to.match(
      new RegExp(`^https://app.example.com/reset#${other.acme.guid}/${token}`),
    );
    await eventually(async () =>
      new RegExp(`^https://globex.example.com/reset\\?t=${token}`).test(
        await resetLink(other.globex),
      ),
    );

    expect((await edit('--app-url', 'none')).code).to.equal(0);
    await eventually(async () =>
      (await resetLink(other.globex)).startsWith('https://app.example.com/'),
    );

    await other.close();
  });
});
