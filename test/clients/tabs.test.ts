import { expect } from 'chai';
import { hasBrowser } from '../docs/browser.ts';
import { controlSql, useWorld } from '../support/world.ts';
import { ApplicationTabs, type AppWindow, type Store } from './application-tabs.ts';

describe('TypeScript client in two tabs of a browser', () => {
  const world = useWorld();
  let tabs: ApplicationTabs;

  before(async function () {
    if (!hasBrowser) return this.skip();
    tabs = await ApplicationTabs.open(world);
  });
  after(() => tabs?.close());
  beforeEach(() => tabs.reset());

  for (const store of ['localStorage', 'sessionStorage', undefined] as Store[]) {
    it(`two tabs with one session, with ${store ?? 'no storage'}, stay logged in for more than an hour`, async () => {
      const one = await tabs.load(tabs.first, store);
      const tokens = await tabs.logIn(one);
      const other = store
        ? await tabs.duplicate(one, store)
        : await tabs.load(await tabs.context.newPage(), store, tokens);

      for (let half = 0; half < 2; half++) {
        tabs.passTime();
        expect(await Promise.all([tabs.call(one), tabs.call(other)]), 'at once').to.deep.equal([
          200, 200,
        ]);
        const [first, second] = half % 2 ? [one, other] : [other, one];
        tabs.passTime();
        expect(await tabs.call(first), 'one after the other').to.equal(200);
        await tabs.passTokens(first, second);
        await tabs.ageRefreshTokens();
        expect(await tabs.call(second), 'one after the other').to.equal(200);
        await tabs.ageRefreshTokens();
      }

      expect([await tabs.ended(one), await tabs.ended(other)]).to.deep.equal([0, 0]);
      if (!store) return;
      tabs.passTime();
      await tabs.load(other, store);
      expect(await tabs.call(other), 'after a reload').to.equal(200);
      expect(await tabs.call(one)).to.equal(200);
    });
  }

  it('with sessionStorage, a tab that logs in again has a session of its own, whose logout ends no other', async () => {
    const one = await tabs.load(tabs.first, 'sessionStorage');
    await tabs.logIn(one);
    const other = await tabs.duplicate(one, 'sessionStorage');
    await tabs.logIn(other);
    tabs.passTime();
    expect([await tabs.call(other), await tabs.call(one)]).to.deep.equal([200, 200]);

    expect(await tabs.logOut(other)).to.equal(true);

    expect(await tabs.call(other)).to.equal(401);
    expect(await tabs.call(one)).to.equal(200);
    expect(await tabs.ended(one)).to.equal(0);
    await tabs.load(one, 'sessionStorage');
    expect(await tabs.call(one), 'after a reload').to.equal(200);
  });

  it('after a logout, or the end of a session by the service, both tabs get 401, and their pages are notified', async () => {
    const one = await tabs.load(tabs.first, 'localStorage');
    await tabs.logIn(one);
    const other = await tabs.loadBeside(one, await tabs.context.newPage(), 'localStorage');
    await tabs.logOut(one);
    await other.waitForFunction(() => (globalThis as unknown as AppWindow).ended === 1);
    expect(await tabs.call(one)).to.equal(401);
    expect(await tabs.call(other)).to.equal(401);
    expect(await tabs.ended(one)).to.equal(1);
    await tabs.storesNothing(other);

    await tabs.logIn(other);
    await controlSql(world, 'update sessions set revoked_at = now() where revoked_at is null');
    await other.waitForFunction(async () => {
      const { office } = globalThis as unknown as AppWindow;
      return (await office.GET('/api/v1/auth/me')).response.status === 401;
    });
    expect(await tabs.ended(other)).to.equal(2);
    await tabs.storesNothing(other);
  });

  it('with localStorage, a login in one tab counts in the others, also in one that the browser tells late', async () => {
    const one = await tabs.load(tabs.first, 'localStorage');
    const other = await tabs.load(await tabs.context.newPage(), 'localStorage');
    const late = await tabs.loadLate(await tabs.context.newPage(), 'localStorage');
    expect(await tabs.call(other)).to.equal(401);

    await tabs.logIn(one);

    await tabs.passTokens(one, other);
    expect(await tabs.call(other)).to.equal(200);
    expect(await tabs.call(late)).to.equal(401);
    await tabs.catchUp(late);
    await tabs.passTokens(one, late);
    expect(await tabs.call(late)).to.equal(200);
  });

  it('a tab that learns late of new tokens exchanges the former ones as well, and both stay logged in', async () => {
    const one = await tabs.load(tabs.first, 'localStorage');
    await tabs.logIn(one);
    const late = await tabs.loadBeside(one, await tabs.context.newPage(), 'localStorage');
    await tabs.loadLate(late, 'localStorage');

    tabs.passTime();
    expect(await tabs.call(one)).to.equal(200);
    expect(await tabs.call(late)).to.equal(200);
    await tabs.catchUp(late);

    for (const tab of [one, late]) {
      tabs.passTime();
      expect(await tabs.call(tab)).to.equal(200);
    }
    expect([await tabs.ended(one), await tabs.ended(late)]).to.deep.equal([0, 0]);
  });

  it('a logout without a network counts, although a tab that learns late of it stores new tokens', async () => {
    const one = await tabs.load(tabs.first, 'localStorage');
    await tabs.logIn(one);
    const late = await tabs.loadBeside(one, await tabs.context.newPage(), 'localStorage');
    await tabs.loadLate(late, 'localStorage');
    await tabs.context.route('**/auth/logout', route => route.abort());
    tabs.passTime();

    expect(await tabs.logOut(one)).to.equal(false);
    expect(await tabs.call(late), 'before it learns of it').to.equal(200);
    await tabs.passStored(late, one);

    expect(await tabs.call(one)).to.equal(401);
    await tabs.catchUp(late);
    await late.waitForFunction(() => (globalThis as unknown as AppWindow).ended === 1);
    for (const tab of [one, late]) {
      expect(await tabs.call(tab)).to.equal(401);
      expect((await tabs.stored(tab)).join()).not.to.contain('refreshToken');
    }
  });

  for (const store of ['localStorage', 'sessionStorage', undefined] as Store[]) {
    it(`a person who logs out without a network, with ${store ?? 'no storage'}, is logged out in each tab, also in one that was frozen`, async () => {
      const one = await tabs.load(tabs.first, store);
      const tokens = await tabs.logIn(one);
      const other = store
        ? await tabs.duplicate(one, store)
        : await tabs.load(await tabs.context.newPage(), store, tokens);
      const devTools = await tabs.context.newCDPSession(other);
      await devTools.send('Page.setWebLifecycleState', { state: 'frozen' });
      await tabs.context.setOffline(true);

      expect(await tabs.logOut(one)).to.equal(false);
      expect(await tabs.ended(one)).to.equal(1);
      expect((await tabs.stored(one)).join()).not.to.contain(tokens.refreshToken.slice(0, 8));

      await tabs.context.setOffline(false);
      await devTools.send('Page.setWebLifecycleState', { state: 'active' });
      expect(await tabs.call(one)).to.equal(401);
      await other.waitForFunction(() => (globalThis as unknown as AppWindow).ended === 1);
      expect(await tabs.call(other)).to.equal(401);
      if (!store) return;
      for (const tab of [one, other]) {
        await tabs.load(tab, store);
        expect(await tabs.call(tab), 'after a reload').to.equal(401);
      }
    });
  }

  it('with sessionStorage, a duplicated tab that was discarded goes on with the tokens of the other tab', async () => {
    const one = await tabs.load(tabs.first, 'sessionStorage');
    await tabs.logIn(one);
    const other = await tabs.duplicate(one, 'sessionStorage');
    await other.goto('about:blank');
    await tabs.slowTimers(other);
    for (let refresh = 0; refresh < 2; refresh++) {
      tabs.passTime();
      expect(await tabs.call(one)).to.equal(200);
      await tabs.ageRefreshTokens();
    }

    await tabs.loadBeside(one, other, 'sessionStorage');
    expect(await tabs.call(other)).to.equal(200);

    tabs.passTime();
    expect([await tabs.call(other), await tabs.call(one)]).to.deep.equal([200, 200]);
    expect([await tabs.ended(other), await tabs.ended(one)]).to.deep.equal([0, 0]);
  });

  it('with sessionStorage, a duplicated tab whose tokens were exchanged by one that sleeps asks for a login, and ends no session', async () => {
    const one = await tabs.load(tabs.first, 'sessionStorage');
    await tabs.logIn(one);
    const other = await tabs.duplicate(one, 'sessionStorage');
    await other.goto('about:blank');
    tabs.passTime();
    expect(await tabs.call(one)).to.equal(200);
    await tabs.ageRefreshTokens();
    await tabs.loadBeside(one, other, 'sessionStorage');
    await one.goto('about:blank');
    tabs.passTime();

    expect(await tabs.call(other)).to.equal(401);
    expect(await tabs.ended(other)).to.equal(1);

    await tabs.load(one, 'sessionStorage');
    expect(await tabs.call(one)).to.equal(200);
  });
});
