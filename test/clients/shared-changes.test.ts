import { expect } from 'chai';
import type { Page } from 'playwright-core';
import { hasBrowser } from '../docs/browser.ts';
import type { Client } from '../support/client.ts';
import { eventually } from '../support/eventually.ts';
import { settle } from '../support/settle.ts';
import { useLogin, useWorld } from '../support/world.ts';
import { ApplicationTabs, type AppWindow } from './application-tabs.ts';

const stream = '/api/v1/Changes/stream';

/** The globals of a page that follows changes. */
interface FollowingWindow extends AppWindow {
  /** The names in the records of the changes, in their order. */
  names: string[];
  /** The code of the problem with which the changes have ended. */
  failure: string | undefined;
  statuses: string[];
}

describe('changes that tabs of a browser follow', () => {
  const world = useWorld();
  const acme = useLogin(world, 'acme');
  const globex = useLogin(world, 'globex');
  let tabs: ApplicationTabs;
  /** Streams that were requested by all tabs. */
  let streams = 0;

  before(async function () {
    if (!hasBrowser) return this.skip();
    tabs = await ApplicationTabs.open(world);
  });
  after(() => tabs?.close());

  beforeEach(async () => {
    await tabs.reset();
    await settle(world.acme, world.globex);
    streams = 0;
    tabs.context.on('request', request => {
      if (new URL(request.url()).pathname === stream) streams++;
    });
  });

  afterEach(() => {
    world.clock.offsetSeconds = 0;
  });

  /** Opens tabs of one session. */
  async function openTabs(count: number): Promise<Page[]> {
    const first = await tabs.load(tabs.first, 'localStorage');
    await tabs.logIn(first);

    const opened = [first];
    while (opened.length < count) {
      opened.push(await tabs.loadBeside(first, await tabs.context.newPage(), 'localStorage'));
    }
    return opened;
  }

  /** Lets a tab follow changes, and waits until it is told that they come. */
  async function follow(page: Page, resource?: string): Promise<void> {
    await page.evaluate(resource => {
      const app = globalThis as unknown as FollowingWindow;
      app.names = [];
      app.statuses = [];
      const changes = app.office.followChanges({
        resource,
        include: 'record',
        onStatus: status => app.statuses.push(status),
      });

      void (async () => {
        try {
          for await (const { Record } of changes) {
            app.names.push(String(Record?.Name ?? Record?.CountryName));
          }
        } catch (error) {
          app.failure = (error as { problem?: { code: string } }).problem?.code ?? String(error);
        }
      })();
    }, resource);

    await page.waitForFunction(() =>
      (globalThis as unknown as FollowingWindow).statuses.includes('open'),
    );
  }

  async function expectNames(page: Page, names: string[]): Promise<void> {
    await page.waitForFunction(
      last => (globalThis as unknown as FollowingWindow).names.includes(last),
      names.at(-1) ?? '',
    );
    const received = await page.evaluate(() => (globalThis as unknown as FollowingWindow).names);
    expect(received).to.deep.equal(names);
  }

  const create = async (client: Client, Name: string): Promise<void> => {
    await client.post('/api/v1/OrderStatuses', { Name });
  };

  it('seven tabs of a session share one stream, and each receives every change of its tenant once', async () => {
    const opened = await openTabs(7);
    for (const tab of opened) await follow(tab);

    await create(globex, 'of globex');
    const names = ['one', 'two', 'three'];
    for (const name of names) await create(acme, name);

    for (const tab of opened) await expectNames(tab, names);
    expect(streams).to.equal(1);
  });

  it('tabs that follow different resources share one stream, and each receives its own', async () => {
    const [first, second, third] = (await openTabs(3)) as [Page, Page, Page];
    await follow(first, 'OrderStatus');
    await follow(second, 'Country');
    await follow(third, 'Country,OrderStatus');

    await create(acme, 'a status');
    await acme.post('/api/v1/Countries', { CountryCode: 'TAB', CountryName: 'a country' });
    await create(acme, 'another status');

    await expectNames(first, ['a status', 'another status']);
    await expectNames(second, ['a country']);
    await expectNames(third, ['a status', 'a country', 'another status']);
    expect(streams).to.equal(1);
  });

  it('tabs that share a stream receive the record and its tag only if they ask for them', async () => {
    const opened = await openTabs(3);
    const includes = [undefined, 'record', 'record,etag'] as const;
    const keys = opened.map((tab, index) =>
      tab.evaluate(
        async ({ include }) => {
          const { office } = globalThis as unknown as AppWindow;
          for await (const change of office.followChanges({ include })) return Object.keys(change);
          return [];
        },
        { include: includes[index] },
      ),
    );
    let areDone = false;
    const received = Promise.all(keys).finally(() => (areDone = true));
    await eventually(async () => {
      await create(acme, 'included');
      return areDone;
    });

    const [thin, withRecord, withBoth] = await received;
    expect(thin).to.not.include('Record');
    expect(thin).to.not.include('ETag');
    expect(withRecord).to.include('Record');
    expect(withRecord).to.not.include('ETag');
    expect(withBoth).to.include.members(['Record', 'ETag']);
  });

  it('when the tab with the stream is closed, another one goes on, and no change is lost or doubled', async () => {
    const [first, ...others] = (await openTabs(4)) as [Page, ...Page[]];
    for (const tab of [first, ...others]) await follow(tab);
    await create(acme, 'before');
    for (const tab of others) await expectNames(tab, ['before']);

    await Promise.all([first.close(), create(acme, 'while it closes')]);
    await eventually(() => streams === 2);
    await create(acme, 'after');

    for (const tab of others) await expectNames(tab, ['before', 'while it closes', 'after']);
  });

  it('a tab that is frozen with the stream is replaced, and goes on itself when it wakes', async () => {
    const [first, second] = (await openTabs(2)) as [Page, Page];
    await second.clock.install();
    await tabs.loadBeside(first, second, 'localStorage');
    await follow(first);
    await follow(second);
    const devTools = await tabs.context.newCDPSession(first);
    await devTools.send('Page.setWebLifecycleState', { state: 'frozen' });
    await create(acme, 'while it is frozen');

    await second.clock.runFor(120_000);
    await expectNames(second, ['while it is frozen']);
    await devTools.send('Page.setWebLifecycleState', { state: 'active' });
    await create(acme, 'after it has woken');

    await expectNames(first, ['while it is frozen', 'after it has woken']);
    await expectNames(second, ['while it is frozen', 'after it has woken']);
  });

  it('at the end of a token, the tabs of a session refresh it once and connect once', async () => {
    const opened = await openTabs(3);
    let refreshes = 0;
    tabs.context.on('request', request => {
      if (request.url().endsWith('/auth/refresh')) refreshes++;
    });
    for (const tab of opened) await follow(tab);
    await create(acme, 'before');
    for (const tab of opened) await expectNames(tab, ['before']);

    tabs.passTime();
    await eventually(() => streams > 1);
    const later = await world.login(world.acme);
    await create(later, 'after');

    for (const tab of opened) await expectNames(tab, ['before', 'after']);
    expect(streams).to.equal(2);
    expect(refreshes).to.equal(1);
  });

  it('a logout in one tab ends the changes of all', async () => {
    const opened = await openTabs(3);
    for (const tab of opened) await follow(tab);

    await tabs.logOut(opened[1] as Page);

    for (const tab of opened) {
      const failure = await tab.waitForFunction(
        () => (globalThis as unknown as FollowingWindow).failure,
      );
      expect(await failure.jsonValue()).to.equal('unauthorized');
    }
  });
});
