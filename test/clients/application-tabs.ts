import { readFile } from 'node:fs/promises';
import { stripTypeScriptTypes } from 'node:module';
import { join } from 'node:path';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import type { BackOffice, createBackOffice } from '../../clients/typescript/src/back-office.ts';
import { accessTokenLifetimeSeconds } from '../../src/control/token-lifetime.ts';
import { launchBrowser } from '../docs/browser.ts';
import { root } from '../support/command-line.ts';
import { controlSql, type World } from '../support/world.ts';

/** The page of an application, with the client as browsers load it. */
const application = `<!doctype html><title>Application</title>
<script type="module">
import { createBackOffice } from '/app/client/back-office.ts';
window.create = createBackOffice;
</script>`;

/** The globals of the page of the application. */
export interface AppWindow {
  create: typeof createBackOffice;
  office: BackOffice;
  /** The number of times that the application was told of the end of a session. */
  ended: number;
  localStorage: Storage;
  sessionStorage: Storage;
  location: { origin: string };
  open(url: string): void;
}

export type Store = 'localStorage' | 'sessionStorage' | undefined;

/** Tabs of one browser, with an application that uses the client. */
export class ApplicationTabs {
  readonly #world: World;
  readonly #browser: Browser;
  readonly context: BrowserContext;
  /** The tab of all tests: each further one takes the CPU time of many requests. */
  readonly first: Page;

  private constructor(world: World, browser: Browser, context: BrowserContext, first: Page) {
    this.#world = world;
    this.#browser = browser;
    this.context = context;
    this.first = first;
  }

  static async open(world: World): Promise<ApplicationTabs> {
    const browser = await launchBrowser();
    const context = await browser.newContext();
    const first = await context.newPage();
    context.setDefaultTimeout(180_000);
    await context.route('**/app/**', async route => {
      const path = new URL(route.request().url()).pathname.replace('/app/', '');
      if (path === '') return route.fulfill({ contentType: 'text/html', body: application });

      const file = join(root, 'clients/typescript/src', path.replace('client/', ''));
      const body = stripTypeScriptTypes(await readFile(file, 'utf8'));
      await route.fulfill({ contentType: 'text/javascript', body });
    });

    return new ApplicationTabs(world, browser, context, first);
  }

  close(): Promise<void> {
    return this.#browser.close();
  }

  /** Closes all tabs but the first one, and clears its storage. */
  async reset(): Promise<void> {
    await this.context.setOffline(false);
    await this.context.unroute('**/api/**');
    for (const page of this.context.pages()) if (page !== this.first) await page.close();

    await this.first.goto(`${this.#world.url}/app/`);
    await this.first.evaluate(() => {
      const { localStorage, sessionStorage } = globalThis as unknown as AppWindow;
      for (const store of [localStorage, sessionStorage]) store.clear();
    });
  }

  /** Loads the application in a tab, with a client that keeps its tokens in a storage. */
  async load(page: Page, store: Store, tokens?: unknown): Promise<Page> {
    await page.goto(`${this.#world.url}/app/`);
    await page.waitForFunction(() => 'create' in globalThis);
    await page.evaluate(
      ({ tenant, store, tokens }) => {
        const app = globalThis as unknown as AppWindow;
        app.ended = 0;
        app.office = app.create({
          url: app.location.origin,
          tenant,
          storage: store && (() => app[store]),
          tokens: tokens as never,
          onTokens: received => {
            if (!received) app.ended++;
          },
        });
      },
      { tenant: this.#world.acme.guid, store, tokens },
    );

    return page;
  }

  /** Opens a second tab as a browser duplicates one: with a copy of its `sessionStorage`. */
  async duplicate(tab: Page, store: Store): Promise<Page> {
    const opened = this.context.waitForEvent('page');
    await tab.evaluate(() => (globalThis as unknown as AppWindow).open('/app/'));

    return this.load(await opened, store);
  }

  logIn(page: Page) {
    return page.evaluate(
      async ({ email, password }) => {
        const { accessToken, refreshToken } = await (
          globalThis as unknown as AppWindow
        ).office.login(email, password);
        return { accessToken, refreshToken };
      },
      { ...this.#world.acme.admin },
    );
  }

  logOut(page: Page): Promise<boolean> {
    return page.evaluate(() => (globalThis as unknown as AppWindow).office.logout());
  }

  /**
   * @returns the status of a request that needs a session; the name of the error that was
   *   thrown
   */
  call(page: Page): Promise<number | string> {
    return page.evaluate(async () => {
      const { office } = globalThis as unknown as AppWindow;
      return office.GET('/api/v1/auth/me').then(
        ({ response }) => response.status,
        error => error.name as string,
      );
    });
  }

  ended(page: Page): Promise<number> {
    return page.evaluate(() => (globalThis as unknown as AppWindow).ended);
  }

  /** The texts in the storages of a tab. */
  stored(page: Page): Promise<string[]> {
    return page.evaluate(() => {
      const { localStorage, sessionStorage } = globalThis as unknown as AppWindow;
      return [localStorage, sessionStorage].flatMap(each => Object.values({ ...each }) as string[]);
    });
  }

  /** Lets the access tokens expire. */
  passTime(): void {
    this.#world.clock.offsetSeconds += accessTokenLifetimeSeconds + 60;
  }

  /** Lets the minute pass in which a repeated refresh returns the same tokens. */
  async ageRefreshTokens(): Promise<void> {
    await controlSql(
      this.#world,
      `update sessions set refreshed_at = refreshed_at - interval '2 minutes'`,
    );
  }
}
