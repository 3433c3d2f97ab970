import type { Browser, Page } from 'playwright-core';
import type { OpenConsole } from './console-client.ts';

export type PageOptions = NonNullable<Parameters<Browser['newPage']>[0]>;

/** Far above what any step needs, even on a busy machine. */
const maxWaitMs = 120_000;

/**
 * Opens a page in the browser of an operator.
 * @param onError called for each error or warning that the page causes
 */
export async function openPage(
  browser: Browser,
  { cookie, origin }: OpenConsole,
  options: PageOptions = {},
  onError: (text: string) => void = () => {},
): Promise<Page> {
  const page = await browser.newPage(options);
  const [name = '', value = ''] = cookie.split('=');
  await page.context().addCookies([{ name, value, url: origin }]);
  page.setDefaultTimeout(maxWaitMs);
  page.on(
    'console',
    message => ['error', 'warning'].includes(message.type()) && onError(message.text()),
  );
  page.on('pageerror', error => onError(String(error)));
  return page;
}
