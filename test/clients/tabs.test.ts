import { readFile } from 'node:fs/promises';
import { stripTypeScriptTypes } from 'node:module';
import { join } from 'node:path';
import { expect } from 'chai';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import type { createBackOffice } from '../../clients/typescript/src/back-office.ts';
import { accessTokenLifetimeSeconds } from '../../src/control/token-lifetime.ts';
import { hasBrowser, launchBrowser } from '../docs/browser.ts';
import { root } from '../support/command-line.ts';
import { controlSql, useWorld } from '../support/world.ts';

/** The page of an application, with the client as browsers load it. */
const application = `<!doctype html><title>Application</title>
<script type="module">
import { createBackOffice } from '/app/client/back-office.ts';
window.create = createBackOffice;
</script>`;

interface AppWindow {
  create: typeof createBackOffice;
  office: ReturnType<typeof createBackOffice>;
  ended: number;
  localStorage: Storage;
  sessionStorage: Storage;
  open(url: string): void;
}
type Store = 'localStorage' | 'sessionStorage' | undefined;

describe('TypeScript client in two tabs of a browser', () => {
  const world = useWorld();
  let browser: Browser;
  let context: BrowserContext;
  /** The tab of all tests: each further one takes the CPU time of many requests. */
  let first: Page;

  before(async function () {
    if (!hasBrowser) return this.skip();
    browser = await launchBrowser();
    context = await browser.newContext();
    first = await context.newPage();
    context.setDefaultTimeout(180_000);
    await context.route('**/app/**', async route => {
      const path = new URL(route.request().url()).pathname.replace('/app/', '');
      if (path === '') return route.fulfill({ contentType: 'text/html', body: application });
      const file = join(root, 'clients/typescript/src', path.replace('client/', ''));
      const body = stripTypeScriptTypes(await readFile(file, 'utf8'));
      await route.fulfill({ contentType: 'text/javascript', body });
    });
  });
  after(() => browser?.close());
  afterEach(async () => {
    for (const page of context.pages()) if (page !== first) await page.close();
    await first.evaluate(() => {
      const { localStorage, sessionStorage } = globalThis as unknown as AppWindow;
      for (const store of [localStorage, sessionStorage]) store.clear();
    });
  });

  /** Opens a second tab as a browser duplicates one: with a copy of its `sessionStorage`. */
  async function duplicate(tab: Page, store: Store): Promise<Page> {
    const opened = context.waitForEvent('page');
    await tab.evaluate(() => (globalThis as unknown as AppWindow).open('/app/'));
    return openTab(store, undefined, await opened);
  }

  /** Opens a tab with a client, which has the tokens of another tab if there is no storage that has them. */
  async function openTab(store: Store, tokens?: unknown, tab?: Page): Promise<Page> {
    const page = tab ?? (await context.newPage());
    await page.goto(`${world.url}/app/`);
    await page.waitForFunction(() => 'create' in globalThis);
    await page.evaluate(
      ({ tenant, store, tokens }) => {
        const app = globalThis as unknown as AppWindow & { location: { origin: string } };
        app.ended = 0;
        app.office = app.create({
          url: app.location.origin,
          tenant,
          storage: store && app[store],
          tokens: tokens as never,
          onTokens: received => {
            if (!received) app.ended++;
          },
        });
      },
      { tenant: world.acme.guid, store, tokens },
    );
    return page;
  }
  const logIn = (page: Page) =>
    page.evaluate(
      async ({ email, password }) => {
        const { accessToken, refreshToken } = await (globalThis as unknown as AppWindow).office.login(email, password);
        return { accessToken, refreshToken };
      },
      { ...world.acme.admin },
    );
  const call = (page: Page): Promise<number> =>
    page.evaluate(async () => {
      const { office } = globalThis as unknown as AppWindow;
      return (await office.GET('/api/v1/auth/me')).response.status;
    });
  const ended = (page: Page): Promise<number> => page.evaluate(() => (globalThis as unknown as AppWindow).ended);
  const passTime = (): void => {
    world.clock.offsetSeconds += accessTokenLifetimeSeconds + 60;
  };

  for (const store of ['localStorage', 'sessionStorage', undefined] as Store[]) {
    it(`two tabs with one session, with ${store ?? 'no storage'}, stay logged in for more than an hour`, async () => {
      const one = await openTab(store, undefined, first);
      const tokens = await logIn(one);
      const other = store ? await duplicate(one, store) : await openTab(store, tokens);
      for (let half = 0; half < 2; half++) {
        passTime();
        expect(await Promise.all([call(one), call(other)]), 'at once').to.deep.equal([200, 200]);
        passTime();
        const order = half % 2 ? [one, other] : [other, one];
        for (const tab of order) {
          expect(await call(tab), 'one after the other').to.equal(200);
          await ageRefreshTokens();
        }
      }
      expect([await ended(one), await ended(other)]).to.deep.equal([0, 0]);
      if (!store) return;
      passTime();
      await openTab(store, undefined, other);
      expect(await call(other), 'after a reload').to.equal(200);
      expect(await call(one)).to.equal(200);
    });
  }

  it('with sessionStorage, a tab that logs in again has a session of its own, whose logout ends no other', async () => {
    const one = await openTab('sessionStorage', undefined, first);
    await logIn(one);
    const other = await duplicate(one, 'sessionStorage');
    await logIn(other);
    passTime();
    expect([await call(other), await call(one)]).to.deep.equal([200, 200]);
    await other.evaluate(() => (globalThis as unknown as AppWindow).office.logout());
    expect([await call(other), await call(one), await ended(one)]).to.deep.equal([401, 200, 0]);
    await openTab('sessionStorage', undefined, one);
    expect(await call(one), 'after a reload').to.equal(200);
  });

  it('after a logout, or the end of a session by the service, both tabs get 401, and their pages are notified', async () => {
    const one = await openTab('localStorage', undefined, first);
    await logIn(one);
    const other = await openTab('localStorage');
    await one.evaluate(() => (globalThis as unknown as AppWindow).office.logout());
    await other.waitForFunction(() => (globalThis as unknown as AppWindow).ended === 1);
    expect([await call(one), await call(other), await ended(one)]).to.deep.equal([401, 401, 1]);
    expect(await other.evaluate(() => (globalThis as unknown as AppWindow).localStorage.length)).to.equal(0);

    await logIn(other);
    await controlSql(world, 'update sessions set revoked_at = now() where revoked_at is null');
    await other.waitForFunction(async () => {
      const { office } = globalThis as unknown as AppWindow;
      return (await office.GET('/api/v1/auth/me')).response.status === 401;
    });
    expect(await ended(other)).to.equal(2);
  });

  /** Lets the 10 seconds pass in which a repeated refresh returns the same tokens. */
  async function ageRefreshTokens(): Promise<void> {
    await controlSql(world, `update sessions set refreshed_at = refreshed_at - interval '1 minute'`);
  }
});
