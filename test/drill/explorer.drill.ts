import { expect } from 'chai';
import { accessTokenLifetimeSeconds } from '../../src/control/token-lifetime.ts';
import {
  describeInBrowser,
  execute,
  findViolations,
  isDark,
  overflow,
  tryOut,
} from '../docs/browser.ts';

describeInBrowser('drill: explorer in a browser', (world, open) => {
  for (const mode of [
    { colorScheme: 'light' },
    { colorScheme: 'dark' },
    { forcedColors: 'active' },
  ] as const) {
    it(`axe finds nothing wrong with the explorer on a phone and a desktop with ${JSON.stringify(mode)}, and it fits both`, async () => {
      const { page, browserErrors } = await open('/swagger', {
        ...mode,
        viewport: { width: 1280, height: 800 },
      });

      await tryOut(page, 'postAuthLogin');
      const statuses = await tryOut(page, 'getEntityStatus');
      await execute(page, statuses, '/api/v1/EntityStatus');
      await statuses.locator('.live-responses-table').waitFor();

      expect(await findViolations(page), 'at 1280').to.deep.equal([]);
      if ('colorScheme' in mode) {
        expect(await page.evaluate(isDark)).to.equal(mode.colorScheme === 'dark');
      }

      await page.setViewportSize({ width: 390, height: 800 });
      expect(await page.evaluate(overflow)).to.equal(0);
      expect(await findViolations(page), 'at 390').to.deep.equal([]);

      await page.locator('.auth-wrapper .authorize').first().click();
      await page.locator('.dialog-ux').waitFor();
      expect(await findViolations(page), 'in the dialog').to.deep.equal([]);

      // The explorer is not authorised.
      expect(browserErrors.filter(text => !text.includes('403'))).to.deep.equal([]);
      await page.close();
    });
  }

  it('in the explorer, a user logs in, stays logged in, lists statuses and logs out', async () => {
    const { page, browserErrors, origins } = await open('/docs/errors', {
      viewport: { width: 390, height: 800 },
    });
    await page.clock.install();
    await page.goto(`${world().url}/swagger`);
    await page.locator('.opblock').first().waitFor();
    expect(await page.evaluate(overflow), 'on a phone').to.equal(0);
    await page.setViewportSize({ width: 1280, height: 800 });
    const { admin, guid } = world().acme;

    const login = page.locator('.login');
    await login.getByLabel('Tenant').fill(guid);
    await login.getByLabel('E-mail').fill(admin.email);
    await login.getByLabel('Password').fill('a wrong password');
    await page.keyboard.press('Enter');
    await login.getByText('is not right').waitFor();
    const statuses = await tryOut(page, 'getEntityStatus');
    // not authorised yet
    expect((await execute(page, statuses, '/api/v1/EntityStatus')).status()).to.equal(403);

    await login.getByLabel('Password').fill(admin.password);
    await page.keyboard.press('Enter');
    await page.getByText(`Logged in as ${admin.email}`).waitFor();

    const list = await execute(page, statuses, '/api/v1/EntityStatus');
    expect(list.status()).to.equal(200);
    const result = statuses.locator('.live-responses-table', { hasText: 'Prospect' });
    await result.waitFor();
    expect(await result.locator('tbody .response-col_status').first().textContent()).to.include(
      '200',
    );

    world().clock.offsetSeconds += accessTokenLifetimeSeconds;
    await page.clock.fastForward(accessTokenLifetimeSeconds * 1_000);
    const later = await execute(page, statuses, '/api/v1/EntityStatus');
    expect(later.status(), 'with a new access token').to.equal(200);
    await login.getByRole('button', { name: 'Log out' }).click();
    await login.getByRole('button', { name: 'Log in' }).waitFor();
    expect((await execute(page, statuses, '/api/v1/EntityStatus')).status()).to.equal(403);

    expect(browserErrors.filter(text => !/status of 40[13]/.test(text))).to.deep.equal([]);
    expect([...origins]).to.deep.equal([world().url]);
    await page.close();
  });
});
