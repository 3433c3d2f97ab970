import { existsSync } from 'node:fs';
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

/** What a page can be asked in the browser, where these run: nothing of here is there. */
interface Window {
  document: {
    documentElement: { scrollWidth: number; clientWidth: number };
    querySelectorAll(selector: string): Iterable<Element>;
  };
  getComputedStyle(element: Element): { color: string; backgroundColor: string; fontSize: string; fontWeight: string };
}
interface Element {
  open: boolean;
  tagName: string;
  textContent: string;
  parentElement: Element | null;
  childNodes: Iterable<{ nodeType: number; textContent: string }>;
}

if (executable === undefined) console.log('  The documentation in a browser: left out, there is no Chromium here.');
else describe('The documentation in a browser', () => inBrowser(executable));

function inBrowser(executablePath: string): void {
  let world: World;
  let browser: Browser;

  before(async () => {
    world = await createWorld();
    browser = await chromium.launch({ executablePath, args }); // last: nothing would end it if a world could not be made
  });
  after(async () => {
    await browser?.close();
    await world?.close();
  });

  /** Opens a page and collects whatever it complains about, and every address it loads from. */
  async function open(path: string, options: Parameters<Browser['newPage']>[0] = {}) {
    const page = await browser.newPage(options);
    page.setDefaultTimeout(10_000);
    const complaints: string[] = [];
    const origins = new Set<string>();
    page.on('console', message => ['error', 'warning'].includes(message.type()) && complaints.push(message.text()));
    page.on('pageerror', error => complaints.push(String(error)));
    page.on('requestfailed', request => complaints.push(`${request.url()} failed`));
    page.on('request', request => request.url().startsWith('data:') || origins.add(new URL(request.url()).origin));
    await page.goto(world.url + path);
    return { page, complaints, origins };
  }

  for (const colorScheme of ['light', 'dark'] as const) {
    for (const path of pages) {
      it(`shows ${path} ${colorScheme}, on a phone and a desk: nothing cut off, everything in readable contrast`, async () => {
        const { page, complaints, origins } = await open(path, { colorScheme });
        await page.evaluate(openAll);
        for (const width of [390, 1280]) {
          await page.setViewportSize({ width, height: 800 });
          expect(await page.evaluate(overflow), `at ${width}`).to.equal(0);
          const contrasts = await page.evaluate(textContrasts);
          expect(contrasts.length).to.be.greaterThan(20);
          expect(contrasts.filter(({ ratio }) => ratio < 4.5)).to.deep.equal([]);
        }
        expect(await page.evaluate(isDark)).to.equal(colorScheme === 'dark');
        expect(complaints).to.deep.equal([]);
        expect([...origins]).to.deep.equal([world.url]);
        await page.close();
      });
    }
  }

  for (const path of pages) {
    it(`shows ${path} without scripts`, async () => {
      const context = await browser.newContext({ javaScriptEnabled: false });
      const page = await context.newPage();
      await page.goto(world.url + path);
      expect(await page.locator('h1').isVisible()).to.equal(true);
      expect((await page.locator('main').textContent())?.length).to.be.greaterThan(1_000);
      if (path === '/docs/reference') {
        const endpoint = page.locator('details', { hasText: 'Create one Country record' });
        expect(await endpoint.locator('.inside').isVisible()).to.equal(false);
        await endpoint.locator('summary').click();
        expect(await endpoint.locator('.inside').isVisible()).to.equal(true);
        expect(await endpoint.locator('.inside').textContent()).to.include('settings.write');
      }
      await context.close();
    });
  }

  it('points, without scripts, from the explorer to the reference', async () => {
    const context = await browser.newContext({ javaScriptEnabled: false });
    const page = await context.newPage();
    await page.goto(`${world.url}/swagger`);
    await page.getByRole('link', { name: 'reference' }).click();
    expect(new URL(page.url()).pathname).to.equal('/docs/reference');
    await context.close();
  });

  it('leads from page to page, and to the section that a link names', async () => {
    const { page, complaints } = await open('/docs');
    await page.getByRole('link', { name: 'All codes' }).click();
    await page.getByRole('link', { name: '503 Service Unavailable' }).click();
    expect(new URL(page.url()).hash).to.equal('#unavailable');
    await page.locator('header').getByRole('link', { name: 'Reference' }).click();
    await page.getByRole('link', { name: 'Currency' }).click();
    expect(await page.locator('#Currency').evaluate(isInView)).to.equal(true);
    expect(complaints).to.deep.equal([]);
    await page.close();
  });

  it('lets a user log in, authorise and list statuses in the explorer, with nothing but a mouse and a keyboard', async () => {
    const { page, complaints, origins } = await open('/swagger');
    const { admin, guid } = world.acme;

    const login = await tryOut(page, 'postAuthLogin');
    await login.locator('tr[data-param-name="X-Tenant"] input').fill(guid);
    await login.locator('textarea').fill(JSON.stringify(admin));
    const answered = await execute(page, login, '/api/v1/auth/login');
    expect(answered.status()).to.equal(200);
    const { accessToken } = await answered.json();
    await login.locator('.live-responses-table', { hasText: 'accessToken' }).waitFor();

    const statuses = await tryOut(page, 'getEntityStatus');
    expect((await execute(page, statuses, '/api/v1/EntityStatus')).status()).to.equal(403); // nobody yet

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
    const shown = statuses.locator('.live-responses-table', { hasText: 'Prospect' });
    await shown.waitFor();
    expect(await shown.locator('tbody .response-col_status').first().textContent()).to.include('200');

    expect(complaints.filter(text => !/status of 403/.test(text))).to.deep.equal([]);
    expect([...origins]).to.deep.equal([world.url]);
    await page.close();
  });

  it('shows the whole explorer on a phone, in light and dark', async () => {
    for (const colorScheme of ['light', 'dark'] as const) {
      const { page, complaints } = await open('/swagger', { colorScheme, viewport: { width: 390, height: 800 } });
      await page.locator('#operations-Country-postCountries').waitFor();
      expect(await page.evaluate(overflow)).to.equal(0);
      expect(await page.evaluate(isDark)).to.equal(colorScheme === 'dark');
      expect(complaints).to.deep.equal([]);
      await page.close();
    }
  });
}

/** Unfolds an operation of the explorer, ready to be filled in. */
async function tryOut(page: Page, operationId: string) {
  const operation = page.locator(`.opblock[id$="-${operationId}"]`);
  await operation.locator('.opblock-summary-control').click();
  await operation.getByRole('button', { name: 'Execute' }).waitFor();
  return operation;
}

async function execute(page: Page, operation: Awaited<ReturnType<typeof tryOut>>, path: string) {
  const answer = page.waitForResponse(response => new URL(response.url()).pathname === path);
  await operation.getByRole('button', { name: 'Execute' }).click();
  return answer;
}

// The functions below run in the page.

function openAll(): void {
  const { document } = globalThis as unknown as Window;
  for (const details of document.querySelectorAll('details')) details.open = true;
}

/** How many pixels the page is wider than its window. */
function overflow(): number {
  const { documentElement } = (globalThis as unknown as Window).document;
  return documentElement.scrollWidth - documentElement.clientWidth;
}

function isDark(): boolean {
  const { document, getComputedStyle } = globalThis as unknown as Window;
  const backgrounds = ['body', 'html'].flatMap(name => [...document.querySelectorAll(name)].map(getComputedStyle));
  const painted = backgrounds.map(style => style.backgroundColor).find(color => !/, 0\)$/.test(color));
  return painted !== undefined && Number(painted.match(/[\d.]+/)?.[0]) < 128;
}

function isInView(element: unknown): boolean {
  const { top } = (element as { getBoundingClientRect(): { top: number } }).getBoundingClientRect();
  return top >= 0 && top < 400;
}

/** The contrast (WCAG 2) of every element that holds text of its own, against what is painted behind it. */
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
  const behind = (element: Element | null): string => {
    if (element === null) return 'rgb(255, 255, 255)';
    const { backgroundColor } = getComputedStyle(element);
    return channels(backgroundColor)[3] === 0 ? behind(element.parentElement) : backgroundColor;
  };
  const holdsText = (element: Element): boolean =>
    [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim() !== '');
  return [...document.querySelectorAll('body *')].filter(holdsText).map(element => {
    const [light = 0, dark = 0] = [luminance(getComputedStyle(element).color), luminance(behind(element))].sort(
      (a, b) => b - a,
    );
    return { text: `${element.tagName} ${element.textContent.slice(0, 40)}`, ratio: (light + 0.05) / (dark + 0.05) };
  });
}
