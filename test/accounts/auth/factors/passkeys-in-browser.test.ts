import { expect } from 'chai';
import type { CDPSession, Page } from 'playwright-core';
import { describeInBrowser } from '../../../docs/browser.ts';
import type { Client } from '../../../support/client.ts';
import { eventually } from '../../../support/eventually.ts';
import { controlSql } from '../../../support/world.ts';
import { expectProblem } from '../../people/people-world.ts';
import { factorsPath, factorWorld, type Person } from './factor-world.ts';

const page = 'https://app.example.com';
const otherPage = 'https://shop.example.com';
const loginPath = '/api/v1/auth/login/passkey';
const origin = { Origin: page };

describeInBrowser('passkeys in a browser', (world, open) => {
  let browserPage: Page;
  let browserErrors: string[];
  let session: CDPSession;

  before(async () => {
    const pages = 'update tenants set passkey_origins = array[?] where guid = ?';
    await controlSql(world(), pages, [page, world().acme.guid]);
    await eventually(async () => (await loginOptions()).status === 200);

    ({ page: browserPage, browserErrors } = await open('/docs'));
    const blank = { contentType: 'text/html', body: '<title>A page of the tenant</title>' };
    for (const each of [page, otherPage]) {
      await browserPage.route(`${each}/**`, route => route.fulfill(blank));
    }
    session = await browserPage.context().newCDPSession(browserPage);
    await session.send('WebAuthn.enable');
  });
  beforeEach(() => browserPage.goto(`${page}/`));

  const loginOptions = () => {
    const { anonymous, acme } = world();
    return anonymous.post(`${loginPath}/options`, {}, { ...origin, 'X-Tenant': acme.guid });
  };
  const loginAlone = (passkey: unknown) =>
    world().anonymous.post(loginPath, { passkey }, { 'X-Tenant': world().acme.guid });

  /** Lets the browser have an authenticator, and returns its id and its removal. */
  const useAuthenticator = async (hasUserVerification: boolean) => {
    const { authenticatorId } = await session.send('WebAuthn.addVirtualAuthenticator', {
      options: {
        protocol: 'ctap2',
        transport: 'internal',
        hasResidentKey: true,
        hasUserVerification,
        isUserVerified: hasUserVerification,
        automaticPresenceSimulation: true,
      },
    });
    const remove = () => session.send('WebAuthn.removeVirtualAuthenticator', { authenticatorId });
    return { authenticatorId, remove };
  };
  /** The credential of the browser as JSON, or the name of the error. */
  const ask = (method: 'create' | 'get', options: object): Promise<unknown> => {
    const parse =
      method === 'create' ? 'parseCreationOptionsFromJSON' : 'parseRequestOptionsFromJSON';
    return browserPage.evaluate(`
      navigator.credentials.${method}({
        publicKey: PublicKeyCredential.${parse}(${JSON.stringify(options)}),
      }).then(credential => credential.toJSON(), error => error.name)`);
  };
  const add = async (client: Client) => {
    const options = await client.post(`${factorsPath}/passkeys/options`, {}, origin);
    expect(options.status, JSON.stringify(options.body)).to.equal(200);
    const passkey = await ask('create', options.body);
    const added = await client.post(`${factorsPath}/passkeys`, { passkey });
    expect(added.status, JSON.stringify(added.body)).to.equal(201);
  };
  const login = async (person: Person) => {
    const people = factorWorld(world());
    const { body } = await people.login(person);
    const passkey = await ask('get', body.passkey);
    return people.verify(person, { challenge: body.challenge, passkey });
  };

  it('an authenticator that recognises its user adds a passkey, completes logins, and logs in alone', async () => {
    const { person, client } = await factorWorld(world()).add(world().acme);
    const { remove } = await useAuthenticator(true);

    await add(client);
    expect((await login(person)).status).to.equal(200);
    const alone = await loginAlone(await ask('get', (await loginOptions()).body));
    await remove();

    expect(alone.status, JSON.stringify(alone.body)).to.equal(200);
  });

  it('an authenticator that recognises nobody completes logins, and does not log in alone', async () => {
    const { person, client } = await factorWorld(world()).add(world().acme);
    const { remove } = await useAuthenticator(false);

    await add(client);
    expect((await login(person)).status).to.equal(200);
    const { body: options } = await loginOptions();
    const refused = await ask('get', { ...options, timeout: 1_000 });
    await remove();

    expect(refused).to.equal('NotAllowedError');
  });

  it('a passkey is offered to no page of another host', async () => {
    const { person, client } = await factorWorld(world()).add(world().acme);
    const { remove } = await useAuthenticator(true);
    await add(client);
    const { body } = await factorWorld(world()).login(person);

    await browserPage.goto(`${otherPage}/`);
    const refused = await ask('get', body.passkey);
    await remove();

    expect(refused).to.equal('SecurityError');
  });

  it('the explorer logs in with a passkey, beside the password and alone, and says where it does not work', async () => {
    const { person, client } = await factorWorld(world()).add(world().acme);
    const { remove } = await useAuthenticator(true);
    const explorer = new URL('/swagger', world().url);
    explorer.hostname = 'localhost';
    await browserPage.goto(explorer.href);
    const form = browserPage.locator('.login');
    const press = (name: string) => form.getByRole('button', { name, exact: true }).click();
    const fillPassword = async () => {
      await form.getByLabel('E-mail').fill(person.email);
      await form.getByLabel('Password').fill(person.password);
      await press('Log in');
    };
    const expectLogin = async () => {
      await browserPage.getByText(`Logged in as ${person.email}`).waitFor();
      await press('Log out');
      await form.getByLabel('Tenant').fill(world().acme.guid);
    };
    await form.getByLabel('Tenant').fill(world().globex.guid);
    await press('Use a passkey');
    await form.getByText('Passkeys of this tenant do not work on this page.').waitFor();

    const pages = 'update tenants set passkey_origins = array[?, ?] where guid = ?';
    await controlSql(world(), pages, [page, explorer.origin, world().acme.guid]);
    const local = { Origin: explorer.origin };
    const options = () => client.post(`${factorsPath}/passkeys/options`, {}, local);
    await eventually(async () => (await options()).body.rp.id === 'localhost');
    const passkey = await ask('create', (await options()).body);
    expect((await client.post(`${factorsPath}/passkeys`, { passkey })).status).to.equal(201);
    await form.getByLabel('Tenant').fill(world().acme.guid);

    await fillPassword();
    await form.getByText('Complete the login with your passkey.').waitFor();
    expect(await form.getByLabel('Code of your app').count()).to.equal(0);
    await press('Use a passkey');
    await expectLogin();
    await press('Use a passkey');
    await expectLogin();
    await remove();
    expect(browserErrors.filter(text => !/status of 40[01]/.test(text))).to.deep.equal([]);
  });

  it('a copy of a passkey, whose counter has gone back, is refused', async () => {
    const { person, client } = await factorWorld(world()).add(world().acme);
    const { authenticatorId, remove } = await useAuthenticator(true);
    await add(client);
    const { credentials } = await session.send('WebAuthn.getCredentials', { authenticatorId });
    const [copy] = credentials;
    if (!copy) throw new Error('the authenticator has no passkey');

    for (const _ of [1, 2, 3]) expect((await login(person)).status).to.equal(200);
    await session.send('WebAuthn.clearCredentials', { authenticatorId });
    await session.send('WebAuthn.addCredential', { authenticatorId, credential: copy });
    const refused = await login(person);
    await remove();

    expectProblem(refused, 401, 'invalid_passkey');
  });
});
