import { expect } from 'chai';
import { describeInBrowser, execute, findViolations, isDark, overflow, tryOut } from '../docs/browser.ts';

describeInBrowser('drill: explorer in a browser', (_, open) => {
  for (const mode of [{ colorScheme: 'light' }, { colorScheme: 'dark' }, { forcedColors: 'active' }] as const)
    it(`axe finds nothing wrong with the explorer on a phone and a desktop with ${JSON.stringify(mode)}`, async () => {
      const { page } = await open('/swagger', { ...mode, viewport: { width: 1280, height: 800 } });
      await tryOut(page, 'postAuthLogin');
      const statuses = await tryOut(page, 'getEntityStatus');
      await execute(page, statuses, '/api/v1/EntityStatus');
      await statuses.locator('.live-responses-table').waitFor();
      expect(await findViolations(page), 'at 1280').to.deep.equal([]);
      await page.setViewportSize({ width: 390, height: 800 });
      expect(await findViolations(page), 'at 390').to.deep.equal([]);
      await page.locator('.auth-wrapper .authorize').first().click();
      await page.locator('.dialog-ux').waitFor();
      expect(await findViolations(page), 'in the dialog').to.deep.equal([]);
      await page.close();
    });

  it('the explorer fits a phone, in light and in dark mode', async () => {
    for (const colorScheme of ['light', 'dark'] as const) {
      const { page, browserErrors } = await open('/swagger', { colorScheme, viewport: { width: 390, height: 800 } });
      await page.locator('#operations-Country-postCountries').waitFor();
      expect(await page.evaluate(overflow)).to.equal(0);
      expect(await page.evaluate(isDark)).to.equal(colorScheme === 'dark');
      expect(browserErrors).to.deep.equal([]);
      await page.close();
    }
  });
});
