import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { expect } from 'chai';
import { type Browser, chromium, type Page } from 'playwright-core';
import { createWorld, type World } from '../support/world.ts';

const executable = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(existsSync);
const args = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];
const pages = ['/docs', '/docs/reference', '/docs/errors', '/docs/operators'];

/** The part of the DOM that the functions at the end use. They run in the browser and cannot use this module. */
interface Window {
  document: {
    documentElement: { scrollWidth: number; clientWidth: number };
    querySelectorAll(selector: string): Iterable<Element>;
  };
  getComputedStyle(element: Element): { color: string; backgroundColor: string; fontSize: string; fontWeight: string };
}
interface AxeResults {
  violations: { id: string; nodes: { target: string[] }[] }[];
}
interface Element {
  getBoundingClientRect(): { top: number };
  scrollLeft: number;
  open: boolean;
  tagName: string;
  textContent: string;
  parentElement: Element | null;
  childNodes: Iterable<{ nodeType: number; textContent: string }>;
}

/** Far above what any step needs, even on a busy machine. A wait ends as soon as its condition holds. */
const maxWaitMs = 60_000;

if (executable === undefined) console.log('  documentation in a browser: skipped, because Chromium is not installed');
else
  describe('documentation in a browser', function () {
    this.timeout(3 * maxWaitMs);
    browserTests(executable);
  });

function browserTests(executablePath: string): void {
  let world: World;
  let browser: Browser;

  before(async () => {
    world = await createWorld();
    // Last, so that a failure to create the world leaves no browser behind.
    browser = await chromium.launch({ executablePath, args, timeout: maxWaitMs });
  });
  after(async () => {
    await browser?.close();
    await world?.close();
  });

  /** Opens a page. Collects its errors and warnings, and every origin that it loads from. */
  async function open(path: string, options: Parameters<Browser['newPage']>[0] = {}) {
    const page = await browser.newPage(options);
    page.setDefaultTimeout(maxWaitMs);
    const browserErrors: string[] = [];
    const origins = new Set<string>();
    page.on('console', message => ['error', 'warning'].includes(message.type()) && browserErrors.push(message.text()));
    page.on('pageerror', error => browserErrors.push(String(error)));
    page.on('requestfailed', request => browserErrors.push(`${request.url()} failed`));
    page.on('request', request => request.url().startsWith('data:') || origins.add(new URL(request.url()).origin));
    await page.goto(world.url + path);
    return { page, browserErrors, origins };
  }

  for (const colorScheme of ['light', 'dark'] as const) {
    for (const path of pages) {
      it(`${path} fits a phone and a desktop in ${colorScheme} mode, with a contrast of at least 4.5`, async () => {
        const { page, browserErrors, origins } = await open(path, { colorScheme });
        await page.evaluate(openAll);
        for (const width of [390, 1280]) {
          await page.setViewportSize({ width, height: 800 });
          expect(await page.evaluate(overflow), `at ${width}`).to.equal(0);
          const contrasts = await page.evaluate(textContrasts);
          expect(contrasts.length).to.be.greaterThan(20);
          expect(contrasts.filter(({ ratio }) => ratio < 4.5)).to.deep.equal([]);
        }
        expect(await page.evaluate(isDark)).to.equal(colorScheme === 'dark');
        expect(browserErrors).to.deep.equal([]);
        expect([...origins]).to.deep.equal([world.url]);
        await page.close();
      });
    }
  }

  for (const path of pages) {
    it(`${path} works without JavaScript`, async () => {
      const { page } = await open(path, { javaScriptEnabled: false });
      expect(await page.locator('h1').isVisible()).to.equal(true);
      expect((await page.locator('main').textContent())?.length).to.be.greaterThan(1_000);
      if (path === '/docs/reference') {
        const endpoint = page.locator('details', { hasText: 'Create one Country record' });
        expect(await endpoint.locator('.inside').isVisible()).to.equal(false);
        await endpoint.locator('summary').click();
        await endpoint.locator('.inside').waitFor({ state: 'visible' });
        expect(await endpoint.locator('.inside').textContent()).to.include('settings.write');
      }
      await page.close();
    });
  }

  it('the keyboard focuses and scrolls a code block that is wider than a phone', async () => {
    const { page } = await open('/docs', { viewport: { width: 390, height: 800 } });
    const block = page.locator('pre').first();
    await page.locator('nav.contents a').last().focus();
    await page.keyboard.press('Tab');
    await block.and(page.locator(':focus')).waitFor();
    await page.keyboard.press('ArrowRight');
    await page.waitForFunction(isScrolled, 'pre');
    await page.close();
  });

  it('without JavaScript, the explorer links to the reference', async () => {
    const { page } = await open('/swagger', { javaScriptEnabled: false });
    await page.getByRole('link', { name: 'reference', exact: true }).click();
    await page.waitForURL('**/docs/reference');
    await page.close();
  });

  it('a link opens its page at the section that it names', async () => {
    const { page, browserErrors } = await open('/docs');
    await page.getByRole('link', { name: 'All codes' }).click();
    await page.getByRole('link', { name: '503 Service Unavailable' }).click();
    await page.waitForURL('**/docs/errors#unavailable');
    await page.locator('header').getByRole('link', { name: 'Reference' }).click();
    await page.getByRole('link', { name: 'Currency' }).click();
    await page.waitForFunction(isNearTop, '#Currency');
    expect(browserErrors).to.deep.equal([]);
    await page.close();
  });

  it('in the explorer, a user logs in, authorises and lists statuses with mouse and keyboard', async () => {
    const { page, browserErrors, origins } = await open('/swagger');
    const { admin, guid } = world.acme;

    const login = await tryOut(page, 'postAuthLogin');
    await login.locator('tr[data-param-name="X-Tenant"] input').fill(guid);
    await login.locator('textarea').fill(JSON.stringify(admin));
    const loginResponse = await execute(page, login, '/api/v1/auth/login');
    expect(loginResponse.status()).to.equal(200);
    const { accessToken } = await loginResponse.json();
    await login.locator('.live-responses-table', { hasText: 'accessToken' }).waitFor();

    const statuses = await tryOut(page, 'getEntityStatus');
    expect((await execute(page, statuses, '/api/v1/EntityStatus')).status()).to.equal(403); // not authorised yet

    await page.locator('.auth-wrapper .authorize').first().click();
    const dialog = page.locator('.dialog-ux');
    await dialog.locator('.auth-container', { hasText: 'bearer' }).locator('input').first().fill(accessToken);
    await dialog
      .locator('.auth-container', { hasText: 'bearer' })
      .getByRole('button', { name: /apply|authorize/i })
      .click();
    await dialog.locator('.close-modal').click();

    const list = await execute(page, statuses, '/api/v1/EntityStatus');
    expect(list.status()).to.equal(200);
    const result = statuses.locator('.live-responses-table', { hasText: 'Prospect' });
    await result.waitFor();
    expect(await result.locator('tbody .response-col_status').first().textContent()).to.include('200');

    expect(browserErrors.filter(text => !/status of 403/.test(text))).to.deep.equal([]);
    expect([...origins]).to.deep.equal([world.url]);
    await page.close();
  });

  for (const colorScheme of ['light', 'dark'] as const)
    it(`axe finds nothing wrong with the explorer on a phone and a desktop in ${colorScheme} mode`, async () => {
      const { page } = await open('/swagger', { colorScheme, viewport: { width: 1280, height: 800 } });
      await tryOut(page, 'postAuthLogin');
      const statuses = await tryOut(page, 'getEntityStatus');
      await execute(page, statuses, '/api/v1/EntityStatus');
      await statuses.locator('.live-responses-table').waitFor();
      const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
      await page.evaluate(axe); // not in a script element, which the content security policy forbids
      expect(await page.evaluate(violations), 'at 1280').to.deep.equal([]);
      await page.setViewportSize({ width: 390, height: 800 });
      expect(await page.evaluate(violations), 'at 390').to.deep.equal([]);
      await page.locator('.auth-wrapper .authorize').first().click();
      await page.locator('.dialog-ux').waitFor();
      expect(await page.evaluate(violations), 'in the dialog').to.deep.equal([]);
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
}

/** Expands an operation of the explorer, and waits until its form can be filled in. */
async function tryOut(page: Page, operationId: string) {
  const operation = page.locator(`.opblock[id$="-${operationId}"]`);
  await operation.locator('.opblock-summary-control').click();
  await operation.getByRole('button', { name: 'Execute' }).waitFor();
  return operation;
}

/** Executes an operation, and waits for the response of the service. */
async function execute(page: Page, operation: Awaited<ReturnType<typeof tryOut>>, path: string) {
  const response = page.waitForResponse(candidate => new URL(candidate.url()).pathname === path);
  await operation.getByRole('button', { name: 'Execute' }).click();
  return response;
}

// The functions below run in the browser.

function openAll(): void {
  const { document } = globalThis as unknown as Window;
  for (const details of document.querySelectorAll('details')) details.open = true;
}

/** The number of pixels by which the page is wider than its window. */
function overflow(): number {
  const { documentElement } = (globalThis as unknown as Window).document;
  return documentElement.scrollWidth - documentElement.clientWidth;
}

/** What axe finds, of any impact: the rule, and the elements that break it. */
async function violations(): Promise<string[]> {
  const { axe } = globalThis as unknown as { axe: { run(): Promise<AxeResults> } };
  const found = await axe.run();
  return found.violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ target }) => target.join(' ')).join(', ')}`);
}

function isDark(): boolean {
  const { document, getComputedStyle } = globalThis as unknown as Window;
  const backgrounds = ['body', 'html'].flatMap(name => [...document.querySelectorAll(name)].map(getComputedStyle));
  const opaque = backgrounds.map(style => style.backgroundColor).find(color => !/, 0\)$/.test(color));
  return opaque !== undefined && Number(opaque.match(/[\d.]+/)?.[0]) < 128;
}

/** Whether the element is in the first 400 pixels of the window. */
function isNearTop(selector: string): boolean {
  const [element] = (globalThis as unknown as Window).document.querySelectorAll(selector);
  const top = element?.getBoundingClientRect().top ?? -1;
  return top >= 0 && top < 400;
}

function isScrolled(selector: string): boolean {
  const [element] = (globalThis as unknown as Window).document.querySelectorAll(selector);
  return (element?.scrollLeft ?? 0) > 0;
}

/** The contrast (WCAG 2) of every element with text of its own against its background. */
function textContrasts(): { text: string; ratio: number }[] {
  const { document, getComputedStyle } = globalThis as unknown as Window;
  const channels = (color: string): number[] => (color.match(/[\d.]+/g) ?? []).map(Number);
  const luminance = (color: string): number => {
    const [red = 0, green = 0, blue = 0] = channels(color).map(value => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const backgroundOf = (element: Element | null): string => {
    if (element === null) return 'rgb(255, 255, 255)';
    const { backgroundColor } = getComputedStyle(element);
    return channels(backgroundColor)[3] === 0 ? backgroundOf(element.parentElement) : backgroundColor;
  };
  const hasOwnText = (element: Element): boolean =>
    [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim() !== '');
  return [...document.querySelectorAll('body *')].filter(hasOwnText).map(element => {
    const luminances = [luminance(getComputedStyle(element).color), luminance(backgroundOf(element))];
    const [light = 0, dark = 0] = luminances.sort((a, b) => b - a);
    return { text: `${element.tagName} ${element.textContent.slice(0, 40)}`, ratio: (light + 0.05) / (dark + 0.05) };
  });
}
