import { expect } from 'chai';
import { clientSample, sampleValues } from '../../src/service/pages/code-samples.ts';
import { documents } from '../../src/service/pages/document-page.ts';
import { endpointGroups, referencePath } from '../../src/service/pages/reference.ts';
import { compileProgram, withBuiltClient } from '../clients/built-client.ts';
import {
  describeInBrowser,
  findViolations,
  isDark,
  isNearTop,
  isScrolled,
  openAll,
  overflow,
} from '../docs/browser.ts';
import { document, routes } from '../support/contract.ts';

const paths = [
  ...documents.map(({ path }) => path),
  '/docs/reference',
  ...new Set(routes.map(({ tag }) => referencePath(tag))),
  '/docs/errors',
  '/docs/nothing',
];

describeInBrowser('drill: documentation in a browser', (world, open) => {
  for (const options of [
    { colorScheme: 'light' },
    { colorScheme: 'dark' },
    { forcedColors: 'active' },
  ] as const) {
    it(`axe finds nothing wrong with any page on a phone and a desktop with ${JSON.stringify(options)}`, async () => {
      const { page, browserErrors, origins } = await open('/docs', options);

      for (const path of paths) {
        await page.goto(world().url + path);
        await page.evaluate(openAll);
        if ('colorScheme' in options) {
          expect(await page.evaluate(isDark), path).to.equal(options.colorScheme === 'dark');
        }

        for (const width of [390, 1280]) {
          await page.setViewportSize({ width, height: 800 });
          expect(await findViolations(page), `${path} at ${width}`).to.deep.equal([]);
          expect(await page.evaluate(overflow), `${path} at ${width}`).to.equal(0);
        }
      }

      await page.getByRole('searchbox').fill('currency');
      await page.locator('#search-results a').first().waitFor();
      expect(await findViolations(page), 'search').to.deep.equal([]);

      expect(browserErrors.filter(text => !text.includes('404'))).to.deep.equal([]);
      expect([...origins]).to.deep.equal([world().url]);
      await page.close();
    });
  }

  it('every page works without JavaScript', async () => {
    const { page } = await open('/docs', { javaScriptEnabled: false });
    for (const path of paths.filter(path => path !== '/docs/nothing')) {
      await page.goto(world().url + path);
      expect(await page.locator('h1').isVisible(), path).to.equal(true);
      // The shortest page lists the changes of the API, of which a first release has none.
      expect((await page.locator('main').textContent())?.length, path).to.be.greaterThan(200);
    }
    await page.close();
  });

  it('/docs/reference/country works without JavaScript, and the explorer links to the reference', async () => {
    const { page } = await open('/docs/reference/country', { javaScriptEnabled: false });
    expect(await page.locator('h1').isVisible()).to.equal(true);
    expect((await page.locator('main').textContent())?.length).to.be.greaterThan(1_000);

    const endpoint = page.locator('section', { hasText: 'Create one Country record' });
    expect(await endpoint.textContent()).to.include('settings.write');
    expect(await endpoint.locator('figure:visible').count(), 'examples').to.equal(3);
    expect(await page.locator('[role=search]').isVisible()).to.equal(false);

    await page.goto(`${world().url}/swagger`);
    await page.getByRole('link', { name: 'reference', exact: true }).click();
    await page.waitForURL('**/docs/reference');
    await page.close();
  });

  it('the keyboard focuses and scrolls a code block that is wider than a phone', async () => {
    const { page } = await open('/docs/guide/first-call', {
      viewport: { width: 390, height: 800 },
    });
    const block = page.locator('pre').first();

    await page.locator('.contents a').last().focus();
    await page.keyboard.press('Tab');
    await block.and(page.locator(':focus')).waitFor();

    await page.keyboard.press('ArrowRight');
    await page.waitForFunction(isScrolled, 'pre');
    await page.close();
  });

  it('a link opens its page at the section that it names', async () => {
    const { page } = await open('/docs', { viewport: { width: 1280, height: 800 } });
    await page
      .getByRole('navigation', { name: 'Guide' })
      .getByRole('link', { name: 'Errors' })
      .click();

    await page.getByRole('link', { name: 'All codes' }).click();
    await page.getByRole('link', { name: '503 Service Unavailable' }).click();
    await page.waitForURL('**/docs/errors#unavailable');

    await page.locator('header').getByRole('link', { name: 'Reference' }).click();
    await page.getByRole('link', { name: 'POST /api/v1/Currency', exact: true }).click();
    await page.waitForFunction(isNearTop, '#postCurrency');
    await page.close();
  });
});

describe('drill: TypeScript examples of the reference', () => {
  it('every TypeScript example of the reference compiles with the built package', () =>
    withBuiltClient(folder => compileProgram(folder, referenceSamples())));
});

/** The TypeScript examples of the reference, each in a function of its own. */
function referenceSamples(): string {
  const samples = endpointGroups(document).flatMap(group =>
    group.endpoints.map(endpoint =>
      clientSample(endpoint, sampleValues(group, 'http://backoffice.test/')),
    ),
  );
  const functions = samples.map(
    (code, index) => `export async function sample${index}() {\n${code}\n}\n`,
  );
  const variables =
    'tenant: string, url: string, csv: string, clientId: string, clientSecret: string';
  const head = "import type { BackOffice } from 'sales-back-office-client';\n";
  return `${head}declare const office: BackOffice, ${variables};\n${functions.join('')}`;
}
