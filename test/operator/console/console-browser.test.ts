import { expect } from 'chai';
import type { Browser } from 'playwright-core';
import { findViolations, hasBrowser, launchBrowser } from '../../docs/browser.ts';
import { controlSql, useWorld } from '../../support/world.ts';
import { openPage } from './browser-page.ts';
import { useConsole } from './console-client.ts';

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
});
