import { expect } from 'chai';
import type { Browser } from 'playwright-core';
import { findViolations, hasBrowser, launchBrowser } from '../../docs/browser.ts';
import { freePort } from '../../support/free-port.ts';
import { controlSql, useWorld } from '../../support/world.ts';
import { openPage } from './browser-page.ts';
import { openConsole, useConsole } from './console-client.ts';

(hasBrowser ? describe : describe.skip)('console in a browser', () => {
  const world = useWorld();
  const opened = useConsole(world);
  let browser: Browser;
  before(async () => {
    browser = await launchBrowser();
  });
  after(() => browser?.close());

  it('with the keyboard alone, an operator finds a tenant, plans, corrects a wrong name, and confirms', async () => {
    const page = await openPage(browser, opened);
    await page.goto(opened.origin);

    await page.locator('#find').focus();
    await page.keyboard.type('globex');
    await page.keyboard.press('Enter');
    await page.getByRole('link', { name: 'globex', exact: true }).press('Enter');
    await page.getByRole('link', { name: 'Suspend', exact: true }).press('Enter');
    await page.getByRole('button', { name: 'Show the plan' }).press('Enter');

    await page.locator('#typed').fill('acme');
    await page.keyboard.press('Enter');
    const summary = page.getByRole('alert');
    await summary.and(page.locator(':focus')).waitFor();
    await page.getByRole('link', { name: 'Type globex to confirm' }).press('Enter');
    await page.locator('#typed').and(page.locator(':focus')).waitFor();

    await page.keyboard.type('globex');
    await page.keyboard.press('Enter');
    await page.getByRole('status').filter({ hasText: 'It is done' }).waitFor();
    expect(await findViolations(page)).to.deep.equal([]);

    const [row] = await controlSql<{ status: string }>(
      world,
      `select status from tenants where slug = 'globex'`,
    );
    expect(row?.status).to.equal('suspended');

    await page.close();
  });

  it('in the header, the search and the age of the page stay beside each other from a tablet on, and are beside the pages on a desktop', async () => {
    const page = await openPage(browser, opened);
    await page.goto(opened.origin);
    const middles = async () => {
      const parts = ['header nav', 'header .find', 'header .beside > .hint'];
      const boxes = await Promise.all(parts.map(part => page.locator(part).boundingBox()));
      return boxes.map(box => Math.round((box?.y ?? 0) + (box?.height ?? 0) / 2));
    };

    for (const width of [768, 1024, 1180, 1280, 1440]) {
      await page.setViewportSize({ width, height: 800 });
      const [pages = 0, search = 0, age = 0] = await middles();
      expect(age, `at ${width}`).to.be.closeTo(search, 2);
      if (width === 1440) expect(search).to.be.closeTo(pages, 2);
    }

    await page.close();
  });

  it('after the console has ended, Back shows none of its pages', async () => {
    const ending = await openConsole(world.environment, ['--no-browser']);
    const page = await openPage(browser, ending);
    await page.goto(`${ending.origin}/tenants/acme`);
    await page.goto(`${ending.origin}/log`);

    expect(await ending.stop()).to.equal(0);
    await page.goBack().catch(() => undefined); // nobody answers

    const shown = await page.locator('body').textContent();
    expect(shown).to.not.include(world.acme.admin.email);
    await page.close();
  });

  it('a form that was being filled in while the console was started anew comes back as it was filled in, and nothing is run before it is sent once more', async () => {
    const port = String(await freePort());
    const first = await openConsole(world.environment, ['--no-browser', '--port', port]);
    const page = await openPage(browser, first);
    await page.goto(`${first.origin}/operations/edit?slug=acme`);
    const name = page.getByLabel('Name', { exact: true });
    await name.fill('Acme of tomorrow');

    expect(await first.stop()).to.equal(0);
    const second = await openConsole(world.environment, ['--no-browser', '--port', port]);

    await page.getByRole('button', { name: 'Run it' }).click();
    await page.getByText('Nothing was run.').waitFor();

    const [cookie = '', value = ''] = second.cookie.split('=');
    await page.context().addCookies([{ name: cookie, value, url: second.origin }]);
    await page.reload();
    await page.getByRole('alert').filter({ hasText: 'of an earlier console' }).waitFor();
    expect(await name.inputValue()).to.equal('Acme of tomorrow');
    const renamed = () => controlSql(world, `select from tenants where name like '%tomorrow'`);
    expect(await renamed()).to.have.length(0);

    await page.getByRole('button', { name: 'Run it' }).click();
    await page.getByRole('status').filter({ hasText: 'It is done' }).waitFor();
    expect(await renamed()).to.have.length(1);

    await page.close();
    expect(await second.stop()).to.equal(0);
  });
});
