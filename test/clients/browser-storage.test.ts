import { expect } from 'chai';
import type { Page } from 'playwright-core';
import { hasBrowser } from '../docs/browser.ts';
import { controlSql, useWorld } from '../support/world.ts';
import { ApplicationTabs, type AppWindow } from './application-tabs.ts';

const stores = ['localStorage', 'sessionStorage'] as const;

describe('TypeScript client in a browser whose parts fail', () => {
  const world = useWorld();
  let tabs: ApplicationTabs;

  before(async function () {
    if (!hasBrowser) return this.skip();
    tabs = await ApplicationTabs.open(world);
  });
  after(() => tabs?.close());
  beforeEach(() => tabs.reset());

  /** A person works for more than an hour: the access token expires several times. */
  async function expectToGoOn(page: Page): Promise<void> {
    for (let refresh = 0; refresh < 3; refresh++) {
      expect(await tabs.call(page)).to.equal(200);
      tabs.passTime();
      await tabs.ageRefreshTokens();
    }
    expect(await tabs.call(page)).to.equal(200);
    expect(await tabs.ended(page)).to.equal(0);
  }

  for (const store of stores) {
    it(`a full ${store} fails no call, and keeps no refresh token that was exchanged`, async () => {
      const page = await tabs.load(tabs.first, store);
      const { refreshToken } = await tabs.logIn(page);

      await page.evaluate(name => {
        const storage = (globalThis as unknown as AppWindow)[name];
        for (let length = 8 * 1024 * 1024; length >= 1; length = Math.floor(length / 2)) {
          try {
            storage.setItem(`filler ${length}`, 'x'.repeat(length));
          } catch {
            // The storage is full.
          }
        }

        // Refuses every item, because a browser may count less for an item that is replaced.
        storage.setItem = () => {
          throw new DOMException('full', 'QuotaExceededError');
        };
        Object.getPrototypeOf(storage).setItem = storage.setItem;
      }, store);

      await expectToGoOn(page);

      expect((await tabs.stored(page)).join()).not.to.contain(refreshToken);
      await tabs.load(page, store);
      expect(await tabs.call(page), 'after a reload').to.equal(401);
      await tabs.logIn(page);
      expect(await tabs.call(page)).to.equal(200);
    });

    it(`a blocked ${store} fails no call`, async () => {
      const page = await tabs.context.newPage();
      await page.addInitScript(() => {
        for (const name of ['localStorage', 'sessionStorage']) {
          Object.defineProperty(globalThis, name, {
            get: () => {
              throw new DOMException('Access is denied for this document.', 'SecurityError');
            },
          });
        }
      });
      await tabs.load(page, store);

      await tabs.logIn(page);

      await expectToGoOn(page);
      expect(await tabs.logOut(page)).to.equal(true);
      expect(await tabs.call(page)).to.equal(401);
    });

    it(`a ${store} with damaged texts fails no call`, async () => {
      const page = await tabs.load(tabs.first, store);
      for (const damaged of ['{', '7', 'null', '{"accessToken":5}', '[]']) {
        await tabs.logIn(page);
        await page.evaluate(
          ({ name, text }) => {
            const { localStorage, ...app } = globalThis as unknown as AppWindow;
            for (const each of [localStorage, app[name as 'sessionStorage'] ?? localStorage]) {
              for (const key of Object.keys(each)) each.setItem(key, text);
            }
          },
          { name: store, text: damaged },
        );

        await expectToGoOn(page);
        await tabs.load(page, store);
        expect(await tabs.call(page), damaged).to.equal(200);
      }
    });

    it(`a ${store} that the browser clears fails no call, and has the tokens again after the next refresh`, async () => {
      const page = await tabs.load(tabs.first, store);
      await tabs.logIn(page);
      await page.evaluate(() => {
        const { localStorage, sessionStorage } = globalThis as unknown as AppWindow;
        for (const each of [localStorage, sessionStorage]) each.clear();
      });

      await expectToGoOn(page);

      await tabs.load(page, store);
      expect(await tabs.call(page), 'after a reload').to.equal(200);
    });
  }

  it('without Web Locks, BroadcastChannel and randomUUID, as in pages of http, two tabs stay logged in', async () => {
    const page = await tabs.context.newPage();
    const removeParts = () => {
      Object.defineProperty(Object.getPrototypeOf(navigator), 'locks', { value: undefined });
      Object.defineProperty(globalThis, 'BroadcastChannel', { value: undefined });
      Object.defineProperty(Object.getPrototypeOf(crypto), 'randomUUID', { value: undefined });
    };
    await page.addInitScript(removeParts);
    await tabs.load(page, 'localStorage');
    await tabs.logIn(page);
    const other = await tabs.context.newPage();
    await other.addInitScript(removeParts);
    await tabs.loadBeside(page, other, 'localStorage');

    const made = await page.evaluate(async () => {
      const { office } = globalThis as unknown as AppWindow;
      return (await office.POST('/api/v1/OrderStatuses', { body: { Name: 'Made over http' } }))
        .response.status;
    });
    expect(made).to.equal(201);
    await expectToGoOn(page);
    await tabs.passTokens(page, other);
    await expectToGoOn(other);
  });

  it('a lock that another page never gives back delays a refresh, and does not stop it', async () => {
    const page = await tabs.load(tabs.first, 'localStorage');
    await tabs.logIn(page);
    await page.evaluate(async () => {
      const { name } = (await navigator.locks.query()).pending?.[0] ?? { name: undefined };
      const held = name ?? Object.keys(localStorage).find(key => !key.includes(' session '));
      await new Promise<void>(taken => {
        void navigator.locks.request(String(held), () => {
          taken();
          return new Promise(() => {});
        });
      });
    });
    tabs.passTime();

    expect(await tabs.call(page)).to.equal(200);
  });

  it('a button that is pressed twice logs in once, and logs out once', async () => {
    const page = await tabs.load(tabs.first, 'localStorage');
    await controlSql(world, 'delete from sessions');

    await page.evaluate(
      async ({ email, password }) => {
        const { office } = globalThis as unknown as AppWindow;
        await Promise.all([office.login(email, password), office.login(email, password)]);
      },
      { ...world.acme.admin },
    );
    const [row] = await controlSql<{ count: number }>(
      world,
      'select count(*)::int as count from sessions',
    );
    expect(row?.count).to.equal(1);

    const ended = await page.evaluate(async () => {
      const { office } = globalThis as unknown as AppWindow;
      return Promise.all([office.logout(), office.logout()]);
    });
    expect(ended).to.deep.equal([true, true]);
    expect(await tabs.ended(page)).to.equal(1);
  });

  it('a stream that falls silent, and a read without a response, are asked for again', async () => {
    const page = await tabs.load(tabs.first, undefined);
    await tabs.logIn(page);
    await page.clock.install();

    let asked = 0;
    await tabs.context.route('**/api/v1/Countries*', route => {
      asked++;
      // the first one is never answered
      return asked === 1 ? new Promise(() => {}) : route.continue();
    });

    const read = page.evaluate(async () => {
      const { office } = globalThis as unknown as AppWindow;
      return (await office.GET('/api/v1/Countries', { params: { query: { q: '' } } })).response
        .status;
    });
    await page.clock.runFor(35_000);
    expect(await read).to.equal(200);
    expect(asked).to.equal(2);

    const begun = page.evaluate(
      async ({ tenant, admin }) => {
        const app = globalThis as unknown as AppWindow & { streams: number };
        app.streams = 0;
        const office = app.create({
          url: app.location.origin,
          tenant,
          fetch: async request => {
            if (!request.url.includes('/stream')) return fetch(request);
            app.streams++;
            return new Response(new ReadableStream(), {
              headers: { 'Content-Type': 'text/event-stream' },
            });
          },
        });
        await office.login(admin.email, admin.password);
        void office.followChanges().next();
      },
      { tenant: world.acme.guid, admin: world.acme.admin },
    );
    await begun;
    await page.clock.runFor(100_000);
    await page.waitForFunction(() => (globalThis as unknown as { streams: number }).streams >= 2);
    await page.clock.resume();
  });
});
