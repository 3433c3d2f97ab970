import { expect } from 'chai';
import {
  describeInBrowser,
  execute,
  expectFits,
  isNearTop,
  type OpenPage,
  openAll,
  readClipboard,
  textContrasts,
  tryOut,
} from './browser.ts';

describeInBrowser('documentation in a browser', (world, open) => {
  let page: OpenPage['page'];
  let browserErrors: string[];
  let origins: Set<string>;
  before(async () => {
    const permissions = ['clipboard-read', 'clipboard-write'];
    ({ page, browserErrors, origins } = await open('/docs', { permissions }));
  });
  beforeEach(() => page.setViewportSize({ width: 1280, height: 800 }));
  afterEach(() => expect(browserErrors).to.deep.equal([]));
  const goTo = (path: string) => page.goto(world().url + path);

  // A drill checks all pages. This one has tables that are wider than a phone, and examples in
  // several languages.
  it('/docs/reference/country fits a phone and a desktop, with a contrast of at least 4.5 in light and in dark mode', async () => {
    await goTo('/docs/reference/country');
    await page.evaluate(openAll);
    await expectFits(page, async () => {
      const contrasts = await page.evaluate(textContrasts);
      expect(contrasts.length).to.be.greaterThan(20);
      expect(contrasts.filter(({ ratio }) => ratio < 4.5)).to.deep.equal([]);
    });
    expect([...origins]).to.deep.equal([world().url]);
  });

  it('the first page of the handbook opens the paragraph of an alert on its page', async () => {
    await goTo('/docs/operate#backofficedown');
    await page.waitForURL('**/docs/operate/incidents#backofficedown');
    expect(await page.locator('#backofficedown').isVisible()).to.equal(true);
  });

  it('the search finds an endpoint, without a server once it is loaded, and the keyboard opens it', async () => {
    await goTo('/docs');
    const index = page.waitForResponse('**/docs/search.json');
    await page.keyboard.press('/');
    await index;
    await page.route('**/search.json', route => route.abort());

    await page.getByRole('searchbox').fill('undelete currency');
    const result = page.getByRole('link', { name: /Undelete one Currency record/ });
    await result.waitFor();

    await page.keyboard.press('ArrowDown');
    await result.and(page.locator(':focus')).waitFor();
    await page.keyboard.press('Enter');
    await page.waitForFunction(isNearTop, '#postCurrencyByIdUndelete');

    await page.unroute('**/search.json');
  });

  it('the search finds a page also by words that readers have for it, such as pagination and forgot password', async () => {
    await goTo('/docs');

    for (const [words, address] of [
      ['pagination', '/docs/guide/lists#page-by-page'],
      ['total count', '/docs/guide/lists#how-many-there-are'],
      ['forgot password', '/docs/reference/authentication#postAuthResetPassword'],
      ['sign in', '/docs/reference/authentication#postAuthLogin'],
      ['optimistic locking', '/docs/guide/safe-changes#two-editors-if-match'],
      ['partial update', '/docs/guide/safe-changes#one-field-patch'],
      ['retry', '/docs/guide/safe-changes#a-lost-response-idempotency-key'],
      ['excel', '/docs/guide/import#export-as-csv'],
      ['bulk upload', '/docs/guide/import'],
      ['realtime', '/docs/guide/events#follow-the-stream'],
      ['new records', '/docs/guide/events#keep-a-copy'],
      ['poll', '/docs/guide/events#keep-a-copy'],
      ['since', '/docs/guide/events#keep-a-copy'],
      ['preflight', '/docs/guide/first-call#browsers'],
      ['CORS', '/docs/guide/first-call#browsers'],
      ['throttling', '/docs/errors#rate_limited'],
      ['sdk', '/docs/guide/first-call#with-typescript'],
      ['disaster', '/docs/operate/restore'],
    ] as const) {
      await page.getByRole('searchbox').fill(words);
      const first = page.locator('#search-results li:first-child a');
      await first.and(page.locator(`[href="${address}"]`)).waitFor();
    }

    await page.getByRole('searchbox').fill('zebra xylophone');
    await page.getByText('No page has these words.').waitFor();
  });

  it('an example is copied, and the chosen language holds for all examples and the next page', async () => {
    await goTo('/docs/reference/country');
    const first = page.locator('#postCountries');
    await first.getByRole('button', { name: /^Copy curl of/ }).click();
    await first.getByRole('button', { name: /^Copied/ }).waitFor();
    expect(await page.evaluate(readClipboard)).to.match(/^curl '.*\/api\/v1\/Countries' \\\n/);

    await first.getByRole('tab', { name: 'TypeScript' }).click();
    await page.getByRole('link', { name: 'Next' }).click();
    await page.waitForURL('**/docs/reference/order-status');

    const next = page.locator('#postOrderStatuses');
    expect(await next.getByLabel(/^TypeScript of/).isVisible()).to.equal(true);
    expect(await next.getByLabel(/^curl of/).isVisible()).to.equal(false);
  });

  it('the explorer sends any of two codes, an operator and a sort as the service reads them, and fills in no id', async () => {
    const { admin, guid } = world().acme;
    const user = await world().login(world().acme);
    for (const [Code, Rate] of [
      ['LOW', 5],
      ['MID', 12.5],
      ['TOP', 25],
    ]) {
      await user.post('/api/v1/TaxCodes', { Code, Name: 'Rate', Rate });
    }
    const { page } = await open('/swagger', { viewport: { width: 1280, height: 800 } });
    const login = page.locator('.login');
    await login.getByLabel('Tenant').fill(guid);
    await login.getByLabel('E-mail').fill(admin.email);
    await login.getByLabel('Password').fill(admin.password);
    await page.keyboard.press('Enter');
    await page.getByText(`Logged in as ${admin.email}`).waitFor();

    const list = await tryOut(page, 'getTaxCodes');
    const row = (name: string) => list.locator(`tr[data-param-name="${name}"]`);
    for (const [place, code] of ['LOW', 'TOP', 'MID'].entries()) {
      await row('filter[Code]').getByRole('button', { name: 'Add string item' }).click();
      await row('filter[Code]').locator('input').nth(place).fill(code);
    }
    await row('filter[Rate][gte]').locator('input').fill('10');
    await row('sort').locator('select[multiple]').selectOption(['-Code', '-Rate']);
    const response = await execute(page, list, '/api/v1/TaxCodes');
    const removal = await tryOut(page, 'deleteTaxCodesById');

    const found = (await response.json()) as { Code: string }[];
    expect(found.map(({ Code }) => Code)).to.deep.equal(['TOP', 'MID']);
    expect(await removal.locator('tr[data-param-name="id"] input').inputValue()).to.equal('');
    await page.close();
  });
});
