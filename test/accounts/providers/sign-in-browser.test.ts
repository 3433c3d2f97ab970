import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { describeInBrowser } from '../../docs/browser.ts';
import { startProvider, type TestProvider } from '../../support/identity-provider.ts';
import { addSampleUser } from '../auth/sample-users.ts';
import { newPerson, signInWorld } from './provider-world.ts';
import { type SignInPage, startSignInPage } from './sign-in-page.ts';

const guide = fileURLToPath(new URL('../../../docs/guide/single-sign-on.md', import.meta.url));

/** Returns the page of the guide, with these values in place of those of the guide. */
async function pageOfGuide(values: Readonly<Record<string, string>>): Promise<string> {
  const [, page = ''] = /```html\n([\s\S]*?)```/.exec(await readFile(guide, 'utf8')) ?? [];

  return Object.entries(values).reduce((text, [from, to]) => {
    expect(text, `the page of the guide has ${from}`).to.include(from);
    return text.replaceAll(from, to);
  }, page);
}

let provider: TestProvider;
let page: SignInPage;
before(async () => {
  [provider, page] = await Promise.all([startProvider(), startSignInPage()]);
});
after(() => Promise.all([provider.close(), page.close()]));

describeInBrowser(
  'sign-in by a provider in a browser',
  (world, open) => {
    it('the page of the guide signs a person in with oidc-client-ts, and calls the service as that person', async () => {
      const people = signInWorld(world(), provider);
      const user = await addSampleUser(world(), world().acme);
      const person = newPerson();
      await people.configure(world().acme);
      await people.link(await world().login(world().acme, user), person);
      provider.allowPage(page.origin);
      provider.expect(person);
      page.show(await pageOfGuide({ 'https://api.example.com': world().url }));

      const { page: tab } = await open('/docs', { ignoreHTTPSErrors: true });
      await tab.goto(page.origin);
      await tab.getByRole('button', { name: 'Log in' }).click();
      await tab.getByText(user.guid).waitFor();

      expect(tab.url()).to.equal(`${page.origin}/`);
      expect(provider.requests).to.include('/token');
    });
  },
  () => ({ TRUSTED_PROVIDERS: provider.trusted, CORS_ORIGINS: page.origin }),
);
