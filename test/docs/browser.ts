import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { expect } from 'chai';
import { type Browser, chromium, type Locator, type Page } from 'playwright-core';
import { createWorld, type World } from '../support/world.ts';

const executablePath = [
  '/usr/bin/chromium',
  '/usr/bin/chromium-browser',
  '/usr/bin/google-chrome',
].find(existsSync);
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

/**
 * The part of the DOM that the functions at the end use. They run in the browser and cannot use
 * this module.
 */
interface Window {
  document: {
    documentElement: { scrollWidth: number; scrollHeight: number; clientWidth: number };
    querySelectorAll(selector: string): Iterable<Element>;
  };
  getComputedStyle(element: Element): {
    color: string;
    backgroundColor: string;
    fontSize: string;
    fontWeight: string;
  };
}
interface AxeResults {
  violations: { id: string; nodes: { target: string[] }[] }[];
}
interface Scroller {
  tagName: string;
  className: string;
  tabIndex: number;
  ariaLabel: string | null;
  scrollWidth: number;
  clientWidth: number;
  scrollHeight: number;
  clientHeight: number;
  closest(selector: string): Scroller | null;
}
interface Element {
  getBoundingClientRect(): { top: number; right: number };
  scrollLeft: number;
  open: boolean;
  tagName: string;
  textContent: string;
  parentElement: Element | null;
  childNodes: Iterable<{ nodeType: number; textContent: string }>;
}

/**
 * Far above what any step needs, even on a busy machine. A wait ends as soon as its condition
 * holds.
 */
const maxWaitMs = 180_000;

export interface OpenPage {
  page: Page;
  /** Errors and warnings of the page. */
  browserErrors: string[];
  /** Every origin that the page loads from. */
  origins: Set<string>;
}

export type OpenBrowserPage = (
  path: string,
  options?: Parameters<Browser['newPage']>[0],
) => Promise<OpenPage>;

/**
 * Describes tests that use a browser and a world. Where Chromium is not installed, they are
 * skipped.
 */
export function describeInBrowser(
  name: string,
  tests: (world: () => World, open: OpenBrowserPage) => void,
  environment: () => Record<string, string> = () => ({}),
): void {
  if (executablePath === undefined) {
    console.log(`  ${name}: skipped, because Chromium is not installed`);
  } else {
    describe(name, () => {
      let world: World;
      let browser: Browser;

      before(async () => {
        world = await createWorld(environment());
        // Last, so that a failure to create the world leaves no browser behind.
        browser = await launchBrowser();
      });

      after(async () => {
        await browser?.close();
        await world?.close();
      });

      tests(
        () => world,
        (path, options = {}) => openPage(browser, world.url + path, options),
      );
    });
  }
}

export const hasBrowser = executablePath !== undefined;

export function launchBrowser(): Promise<Browser> {
  return chromium.launch({
    ...(executablePath ? { executablePath } : {}),
    args,
    timeout: maxWaitMs,
  });
}

async function openPage(
  browser: Browser,
  url: string,
  options: Parameters<Browser['newPage']>[0],
): Promise<OpenPage> {
  const page = await browser.newPage(options);
  page.setDefaultTimeout(maxWaitMs);
  const browserErrors: string[] = [];
  const origins = new Set<string>();
  page.on(
    'console',
    message => ['error', 'warning'].includes(message.type()) && browserErrors.push(message.text()),
  );
  page.on('pageerror', error => browserErrors.push(String(error)));
  page.on('requestfailed', request => browserErrors.push(`${request.url()} failed`));
  page.on(
    'request',
    request => request.url().startsWith('data:') || origins.add(new URL(request.url()).origin),
  );
  await page.goto(url);
  return { page, browserErrors, origins };
}

/** Expands an operation of the explorer, and waits until its form can be filled in. */
export async function tryOut(page: Page, operationId: string) {
  const operation = page.locator(`.opblock[id$="-${operationId}"]`);
  await page.locator('.opblock').first().waitFor();
  await scrollToOperation(page, operation);
  await operation.locator('.opblock-summary-control').click();
  await operation.getByRole('button', { name: 'Execute' }).waitFor();
  return operation;
}

/**
 * Scrolls through the page to an operation: Swagger UI draws only those near the window.
 */
async function scrollToOperation(page: Page, operation: Locator): Promise<void> {
  for (let top = 0; (await operation.count()) === 0; top += 300) {
    await page.evaluate(scrolledTo, top);
  }
}

/** Executes an operation, and waits for the response of the service. */
export async function execute(
  page: Page,
  operation: Awaited<ReturnType<typeof tryOut>>,
  path: string,
) {
  await scrollToOperation(page, operation);
  const response = page.waitForResponse(candidate => new URL(candidate.url()).pathname === path);
  await operation.getByRole('button', { name: 'Execute' }).click();
  return response;
}

/**
 * Returns what axe finds on a page, of any impact: the rule, and the elements that break it.
 */
export async function findViolations(page: Page): Promise<string[]> {
  const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
  await page.evaluate(axe); // not in a script element, which the content security policy forbids
  return page.evaluate(violations);
}

// The functions below run in the browser.

/**
 * Scrolls to a place, and resolves when the page is drawn there.
 * @throws {Error} below the end of the page
 */
function scrolledTo(top: number): Promise<void> {
  const { document, scrollTo, requestAnimationFrame } = globalThis as unknown as Window & {
    scrollTo(left: number, top: number): void;
    requestAnimationFrame(callback: () => void): void;
  };
  if (top > document.documentElement.scrollHeight) throw new Error('no such operation');

  scrollTo(0, top);
  return new Promise(resolve =>
    requestAnimationFrame(() => requestAnimationFrame(() => resolve())),
  );
}

export function openAll(): void {
  const { document } = globalThis as unknown as Window;
  for (const details of document.querySelectorAll('details')) details.open = true;
}

export function readClipboard(): Promise<string> {
  const { navigator } = globalThis as unknown as {
    navigator: { clipboard: { readText(): Promise<string> } };
  };
  return navigator.clipboard.readText();
}

/** The number of pixels by which the page is wider than its window. */
export function overflow(): number {
  const { documentElement } = (globalThis as unknown as Window).document;
  return documentElement.scrollWidth - documentElement.clientWidth;
}

/**
 * The links, buttons and inputs that are beside the window: only by scrolling sideways, inside
 * of a list, would somebody see them.
 */
export function besideWindow(): string[] {
  const { document, innerWidth } = globalThis as unknown as Window & { innerWidth: number };
  const controls = [
    ...document.querySelectorAll('main :is(a, button, input, select, textarea, summary)'),
  ];
  return controls
    .filter(each => each.getBoundingClientRect().right > innerWidth)
    .map(each => each.textContent);
}

/**
 * The elements that scroll and that the keyboard cannot scroll, or that have no name for a
 * screen reader. A list of inputs scrolls with its focus, and its fieldset has the name.
 */
export function unreachableScrollers(): string[] {
  const { document, getComputedStyle } = globalThis as unknown as {
    document: { querySelectorAll(selector: string): Iterable<Scroller> };
    getComputedStyle(element: Scroller): { overflowX: string; overflowY: string };
  };
  const scrolls = (style: string, content: number, box: number): boolean =>
    ['auto', 'scroll'].includes(style) && content > box;

  return [...document.querySelectorAll('body *')]
    .filter(each => {
      const { overflowX, overflowY } = getComputedStyle(each);
      return (
        scrolls(overflowX, each.scrollWidth, each.clientWidth) ||
        scrolls(overflowY, each.scrollHeight, each.clientHeight)
      );
    })
    .filter(each => each.tabIndex < 0 || !each.ariaLabel)
    .filter(each => !each.closest('fieldset'))
    .map(({ tagName, className }) => `${tagName} ${className}`);
}

/**
 * Expects that a page fits a phone in light and a desktop in dark mode.
 * @param check further expectations, run in each of the two looks
 */
export async function expectFits(
  page: Page,
  check: (look: string) => Promise<void>,
): Promise<void> {
  for (const [width, colorScheme] of [
    [390, 'light'],
    [1280, 'dark'],
  ] as const) {
    await page.emulateMedia({ colorScheme });
    await page.setViewportSize({ width, height: 800 });
    expect(await page.evaluate(overflow), `at ${width}`).to.equal(0);
    await check(`${width} ${colorScheme}`);
    expect(await page.evaluate(isDark)).to.equal(colorScheme === 'dark');
  }
}

async function violations(): Promise<string[]> {
  const { axe } = globalThis as unknown as { axe: { run(): Promise<AxeResults> } };
  const found = await axe.run();
  return found.violations.map(
    ({ id, nodes }) => `${id}: ${nodes.map(({ target }) => target.join(' ')).join(', ')}`,
  );
}

export function isDark(): boolean {
  const { document, getComputedStyle } = globalThis as unknown as Window;
  const backgrounds = ['body', 'html'].flatMap(name =>
    [...document.querySelectorAll(name)].map(getComputedStyle),
  );
  const opaque = backgrounds
    .map(style => style.backgroundColor)
    .find(color => !/, 0\)$/.test(color));
  return opaque !== undefined && Number(opaque.match(/[\d.]+/)?.[0]) < 128;
}

/** True if the element is in the first 400 pixels of the window. */
export function isNearTop(selector: string): boolean {
  const [element] = (globalThis as unknown as Window).document.querySelectorAll(selector);
  const top = element?.getBoundingClientRect().top ?? -1;
  return top >= 0 && top < 400;
}

export function isScrolled(selector: string): boolean {
  const [element] = (globalThis as unknown as Window).document.querySelectorAll(selector);
  return (element?.scrollLeft ?? 0) > 0;
}

/** The contrast (WCAG 2) of every element with text of its own against its background. */
export function textContrasts(): { text: string; ratio: number }[] {
  const { document, getComputedStyle } = globalThis as unknown as Window;
  const channels = (color: string): number[] => (color.match(/[\d.]+/g) ?? []).map(Number);
  const luminance = (color: string): number => {
    const [red = 0, green = 0, blue = 0] = channels(color).map(value => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });

    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };

  // Half of all elements have the background of a parent that was looked at before.
  const backgrounds = new Map<Element, string>();
  const backgroundOf = (element: Element | null): string => {
    if (element === null) return 'rgb(255, 255, 255)';
    const known = backgrounds.get(element);
    if (known !== undefined) return known;
    const { backgroundColor } = getComputedStyle(element);
    const found =
      channels(backgroundColor)[3] === 0 ? backgroundOf(element.parentElement) : backgroundColor;
    backgrounds.set(element, found);
    return found;
  };

  const hasOwnText = (element: Element): boolean =>
    [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim() !== '');

  return [...document.querySelectorAll('body *')].filter(hasOwnText).map(element => {
    const luminances = [
      luminance(getComputedStyle(element).color),
      luminance(backgroundOf(element)),
    ];
    const [light = 0, dark = 0] = luminances.sort((a, b) => b - a);

    return {
      text: `${element.tagName} ${element.textContent.slice(0, 40)}`,
      ratio: (light + 0.05) / (dark + 0.05),
    };
  });
}
