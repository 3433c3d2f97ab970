import { expect } from 'chai';
import { startMailServer } from '../../support/mail-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { use } from '../../support/use.ts';
import { createWorld, type TestTenant } from '../../support/world.ts';
import { invitation, usersPath } from '../people/people-world.ts';

const newPassword = 'a password that a link has set';

describe('links in mails of a tenant that gets another slug', () => {
  const mail = use(startMailServer);
  const world = use(() => createWorld({ SMTP_URL: mail.url }));

  const run = async (...args: string[]): Promise<string> => {
    const { code, stdout, stderr } = await runCommand(
      'scripts/backoffice.ts',
      args,
      world.environment,
    );
    expect(code, `${args.join(' ')}: ${stderr}`).to.equal(0);
    return stdout;
  };
  const useToken = (token: string, tenant: string) =>
    world.anonymous.post(
      '/api/v1/auth/reset-password',
      { token, newPassword },
      { 'X-Tenant': tenant },
    );
  const expectInvalid = async (token: string, tenant: string): Promise<void> => {
    const { status, body } = await useToken(token, tenant);
    expect(status, JSON.stringify(body)).to.equal(400);
    expect(body.errorCodes).to.deep.equal({ token: [{ code: 'invalid_token' }] });
  };
  const logIn = (tenant: string, email: string, password: string) =>
    world.anonymous.post('/api/v1/auth/login', { email, password }, { 'X-Tenant': tenant });
  /** Returns the tenant that a login with the password of a link leads to. */
  const tenantOf = async (tenant: string, email: string): Promise<string> => {
    const { status, body } = await logIn(tenant, email, newPassword);
    expect(status, JSON.stringify(body)).to.equal(200);
    const client = world.anonymous.withToken(body.accessToken);
    return (await client.get('/api/v1/auth/me')).body.tenantGuid;
  };

  /** Invites somebody, and asks for a new password of the administrator. */
  async function sendLinks(tenant: TestTenant) {
    const { guid, admin } = tenant;
    const invited = invitation();
    const client = await world.login(tenant);
    expect((await client.post(usersPath, invited)).status).to.equal(201);
    const asked = await world.anonymous.post(
      '/api/v1/auth/reset-password',
      { email: admin.email },
      { 'X-Tenant': guid },
    );
    expect(asked.status).to.equal(202);

    return [
      { email: invited.Email, token: await mail.waitForToken(invited.Email) },
      { email: admin.email, token: await mail.waitForToken(admin.email) },
    ] as const;
  }

  it('an invitation and a reset from before set a password of the same company, by its former and its present slug', async () => {
    const { acme, globex } = world;
    const [invited, reset] = await sendLinks(acme);
    await run('edit', 'acme', '--slug', 'acme-now');

    for (const { token } of [invited, reset]) {
      await expectInvalid(token, globex.guid);
    }
    expect((await useToken(invited.token, 'acme')).status).to.equal(204);
    expect((await useToken(reset.token, 'acme-now')).status).to.equal(204);

    expect(await tenantOf('acme-now', invited.email)).to.equal(acme.guid);
    expect(await tenantOf('acme', reset.email)).to.equal(acme.guid);
    const { email, password } = globex.admin;
    expect((await logIn(globex.guid, email, password)).status).to.equal(200);
  });

  it('the page of a link from before shows the company by its guid, under either slug and under none', async () => {
    const [invited] = await sendLinks(world.globex);
    const text = mail.messagesTo(invited.email)[0]?.content.replaceAll('=\r\n', '');
    const [, path = ''] = /http:\/\/[^/\s]+(\/accept\?[^\s"<]+)/.exec(text ?? '') ?? [];
    const address = path.replaceAll('=3D', '=').replaceAll('&amp;', '&');
    expect(address).to.include(world.globex.guid).and.to.not.include('globex');

    await run('edit', 'globex', '--slug', 'globex-now');
    const during = await fetch(world.url + address);
    await run('edit', 'globex-now', '--alias-days', '0');
    const after = await fetch(world.url + address);

    expect(during.status).to.equal(200);
    expect(after.status).to.equal(200);
    expect(await after.text()).to.include('globex Ltd');
  });

  it('the links of a company never lead to another one that got its slug, also where the address is known there', async () => {
    const initech = await world.provision('initech');
    const [invited, reset] = await sendLinks(initech);
    await run('edit', 'initech', '--slug', 'initech-now', '--alias-days', '0');
    const { status } = await useToken(invited.token, 'initech');
    expect(status, 'a slug that leads nowhere').to.equal(403);

    const made = JSON.parse(
      await run(
        'provision',
        'initech',
        '--reuse-slug',
        '--name',
        'Other Ltd',
        '--admin-email',
        reset.email,
        '--yes',
        '--json',
      ),
    );
    await run('user', 'add', 'initech', invited.email);

    for (const { email, token } of [invited, reset]) {
      for (const tenant of ['initech', made.guid]) {
        await expectInvalid(token, tenant);
        expect((await logIn(tenant, email, newPassword)).status, email).to.equal(401);
      }
    }
    expect((await logIn('initech', made.admin.email, made.admin.password)).status).to.equal(200);

    for (const { email, token } of [invited, reset]) {
      expect((await useToken(token, initech.guid)).status, email).to.equal(204);
      expect(await tenantOf('initech-now', email)).to.equal(initech.guid);
      expect((await logIn('initech', email, newPassword)).status, email).to.equal(401);
    }
  });
});
