import { expect } from 'chai';
import type { Page } from 'playwright-core';
import { findViolations, isDark, overflow } from '../docs/browser.ts';

/** Expects that a page fits a phone in light and a desktop in dark mode, and that axe finds nothing in either. */
export async function expectAccessible(page: Page): Promise<void> {
  for (const [width, colorScheme] of [
    [390, 'light'],
    [1280, 'dark'],
  ] as const) {
    await page.emulateMedia({ colorScheme });
    await page.setViewportSize({ width, height: 800 });
    expect(await page.evaluate(overflow), `at ${width}`).to.equal(0);
    expect(await findViolations(page), `${page.url()} ${width} ${colorScheme}`).to.deep.equal([]);
    expect(await page.evaluate(isDark)).to.equal(colorScheme === 'dark');
  }
}

/** Types one text into each field from the focused one on, and submits their form, all by keyboard. */
export async function submitByKeyboard({ keyboard }: Page, ...texts: string[]): Promise<void> {
  for (const text of texts) {
    await keyboard.type(text);
    await keyboard.press('Tab');
  }
  await keyboard.press('Enter');
}
