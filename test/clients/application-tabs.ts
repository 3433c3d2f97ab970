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
  /** The refresh token that the application was told of last. */
  refreshToken: string | undefined;
  /** The number of times that the application was told of the end of a session. */
  ended: number;
  /** The texts that other tabs have stored, of which the browser has told this one. */
  storedByOthers: string;
  localStorage: Storage;
  sessionStorage: Storage;
  location: { origin: string };
  open(url: string): void;
  addEventListener(
    type: 'storage',
    listener: (event: StorageEvent & { stopImmediatePropagation(): void }) => void,
  ): void;
  dispatchEvent(event: StorageEvent): void;
  StorageEvent: new (type: 'storage', init: StorageEvent) => StorageEvent;
}

interface StorageEvent {
  key: string | null;
  newValue: string | null;
}

export type Store = 'localStorage' | 'sessionStorage' | undefined;

/** Tabs of one browser, with an application that uses the client. */
export class ApplicationTabs {
  readonly #world: World;
  readonly #browser: Browser;
  #context: BrowserContext | undefined;
  #first: Page | undefined;

  private constructor(world: World, browser: Browser) {
    this.#world = world;
    this.#browser = browser;
  }

  static async open(world: World): Promise<ApplicationTabs> {
    return new ApplicationTabs(world, await launchBrowser());
  }

  get context(): BrowserContext {
    if (!this.#context) throw new Error('no browser: reset() comes first');
    return this.#context;
  }

  /** The tab with which a test begins. */
  get first(): Page {
    if (!this.#first) throw new Error('no tab: reset() comes first');
    return this.#first;
  }

  close(): Promise<void> {
    return this.#browser.close();
  }

  /**
   * Begins a test with one tab and empty storages. They are those of a new browser context:
   * what tabs of another test store last may come after a storage is cleared.
   */
  async reset(): Promise<void> {
    await this.#context?.close();
    this.#context = await this.#browser.newContext();
    this.#context.setDefaultTimeout(180_000);
    this.#first = await this.#context.newPage();

    await this.#context.route('**/app/**', async route => {
      const path = new URL(route.request().url()).pathname.replace('/app/', '');
      if (path === '') return route.fulfill({ contentType: 'text/html', body: application });

      const file = join(root, 'clients/typescript/src', path.replace('client/', ''));
      const body = stripTypeScriptTypes(await readFile(file, 'utf8'));
      await route.fulfill({ contentType: 'text/javascript', body });
    });
  }

  /** Loads the application in a tab, with a client that keeps its tokens in a storage. */
  async load(page: Page, store: Store, tokens?: unknown): Promise<Page> {
    await this.#navigate(page);
    await this.#create(page, store, tokens);
    return page;
  }

  /** Loads the application in a tab that reads all that another tab has stored. */
  async loadBeside(tab: Page, page: Page, store: Store): Promise<Page> {
    await this.#navigate(page);
    await this.passItems(await this.items(tab), page);
    await this.#create(page, store);
    return page;
  }

  /**
   * Loads the application in a tab to which the browser passes on nothing that others store or
   * send, until `catchUp` is called.
   */
  async loadLate(page: Page, store: Store): Promise<Page> {
    await page.addInitScript(holdBack);
    return this.load(page, store);
  }

  catchUp(page: Page): Promise<void> {
    return page.evaluate(() => (globalThis as unknown as LateWindow).catchUp());
  }

  /** Lets timers of the pages of a tab run late: a busy machine responds before they do. */
  async slowTimers(page: Page): Promise<void> {
    await page.addInitScript(() => {
      const { setTimeout: start } = globalThis;
      const startLate = (run: () => void, ms = 0) => start(run, 60 * ms);
      Object.assign(globalThis, { setTimeout: startLate });
    });
  }

  async #navigate(page: Page): Promise<void> {
    await page.goto(`${this.#world.url}/app/`);
    await page.waitForFunction(() => 'create' in globalThis);
  }

  async #create(page: Page, store: Store, tokens?: unknown): Promise<void> {
    await page.evaluate(
      ({ tenant, store, tokens }) => {
        const app = globalThis as unknown as AppWindow;
        app.ended = 0;
        app.storedByOthers = '';
        app.addEventListener('storage', ({ newValue }) => {
          app.storedByOthers += newValue;
        });
        app.office = app.create({
          url: app.location.origin,
          tenant,
          storage: store && (() => app[store]),
          tokens: tokens as never,
          onTokens: received => {
            app.refreshToken = received?.refreshToken;
            if (!received) app.ended++;
          },
        });
      },
      { tenant: this.#world.acme.guid, store, tokens },
    );
  }

  /** Opens a second tab as a browser duplicates one: with a copy of its `sessionStorage`. */
  async duplicate(tab: Page, store: Store): Promise<Page> {
    const opened = this.context.waitForEvent('page');
    await tab.evaluate(() => (globalThis as unknown as AppWindow).open('/app/'));

    return this.loadBeside(tab, await opened, store);
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

  /**
   * Waits until the browser has passed on the tokens of a tab to another one: a Web Lock, a
   * message and a storage are each passed on after a while, and in any order.
   */
  async passTokens(from: Page, to: Page): Promise<void> {
    const newest = await from.evaluate(() => (globalThis as unknown as AppWindow).refreshToken);
    await to.waitForFunction(
      token => (globalThis as unknown as AppWindow).refreshToken === token,
      newest,
    );
  }

  /** Waits until the browser has told a tab that another one has stored its tokens. */
  async passStored(from: Page, to: Page): Promise<void> {
    const newest = await from.evaluate(() => (globalThis as unknown as AppWindow).refreshToken);
    await to.waitForFunction(
      token => (globalThis as unknown as AppWindow).storedByOthers.includes(String(token)),
      newest,
    );
  }

  /** Waits until a tab reads these items, whatever else its `localStorage` has. */
  async passItems(items: Record<string, string>, to: Page): Promise<void> {
    await to.waitForFunction(expected => {
      const { localStorage } = globalThis as unknown as AppWindow;
      return Object.entries(expected).every(([key, value]) => localStorage.getItem(key) === value);
    }, items);
  }

  /** The items of the `localStorage` of a tab. */
  items(page: Page): Promise<Record<string, string>> {
    return page.evaluate(() => ({ ...(globalThis as unknown as AppWindow).localStorage }));
  }

  ended(page: Page): Promise<number> {
    return page.evaluate(() => (globalThis as unknown as AppWindow).ended);
  }

  /** Waits until the storages of a tab have nothing, also not of another tab. */
  async storesNothing(page: Page): Promise<void> {
    await page.waitForFunction(() => {
      const { localStorage, sessionStorage } = globalThis as unknown as AppWindow;
      return localStorage.length + sessionStorage.length === 0;
    });
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

interface LateWindow extends AppWindow {
  catchUp(): void;
}

/**
 * Runs in the browser. Holds back messages and events of `localStorage`, and lets reads return
 * what this tab has stored itself, or what there was when it began. Afterwards passes on the
 * messages before what was stored.
 */
function holdBack(): void {
  const app = globalThis as unknown as LateWindow;
  const { localStorage } = app;
  const proto = Object.getPrototypeOf(localStorage) as Storage;
  const { getItem, setItem, removeItem } = proto;
  const seen = new Map<string, string>(Object.entries({ ...localStorage }));
  const messages: (() => void)[] = [];
  const events: (() => void)[] = [];
  let isLate = true;

  proto.getItem = function (key) {
    return isLate && this === localStorage ? (seen.get(key) ?? null) : getItem.call(this, key);
  };
  proto.setItem = function (key, value) {
    if (this === localStorage) seen.set(key, value);
    setItem.call(this, key, value);
  };
  proto.removeItem = function (key) {
    if (this === localStorage) seen.delete(key);
    removeItem.call(this, key);
  };

  const { onmessage } = Object.getOwnPropertyDescriptors(BroadcastChannel.prototype);
  Object.defineProperty(BroadcastChannel.prototype, 'onmessage', {
    set(receive: (event: MessageEvent) => void) {
      onmessage.set?.call(this, (event: MessageEvent) => {
        if (isLate) messages.push(() => receive(event));
        else receive(event);
      });
    },
  });
  app.addEventListener('storage', event => {
    if (!isLate) return;
    const { key, newValue } = event;
    event.stopImmediatePropagation();
    events.push(() => app.dispatchEvent(new app.StorageEvent('storage', { key, newValue })));
  });

  app.catchUp = () => {
    for (const pass of messages) pass();
    isLate = false;
    for (const pass of events) pass();
  };
}
