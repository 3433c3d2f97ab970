import { expect } from 'chai';
import type { Page } from 'playwright-core';
import { expectFits, findViolations } from '../../docs/browser.ts';

/**
 * Expects that a page fits a phone in light and a desktop in dark mode, and that axe finds
 * nothing in either.
 */
export async function expectAccessible(page: Page): Promise<void> {
  await expectFits(page, async look => {
    expect(await findViolations(page), `${page.url()} ${look}`).to.deep.equal([]);
  });
}

/**
 * Types one text into each field from the focused one on, and submits their form, all by
 * keyboard.
 */
export async function submitByKeyboard({ keyboard }: Page, ...texts: string[]): Promise<void> {
  for (const text of texts) {
    await keyboard.type(text);
    await keyboard.press('Tab');
  }
  await keyboard.press('Enter');
}
