import { expect } from 'chai';
import { type Installation, openInstallation } from '../../src/control/installation.ts';
import { readConfig } from '../../src/lib/config/config.ts';
import { explain } from '../../src/lib/log/operator-error.ts';
import { type RunningServer, startServer } from '../../src/service/server.ts';
import type { Client } from '../support/client.ts';
import { announcedMs, eventually } from '../support/eventually.ts';
import { createOwnFeed } from '../support/own-feed.ts';
import { type SilentProxy, startSilentProxy } from '../support/silent-proxy.ts';
import { controlSql, useWorld } from '../support/world.ts';

const path = '/api/v1/EntityStatus';

describe('delivery of notifications to the change feed', () => {
  const world = useWorld();
  let proxy: SilentProxy;
  let installation: Installation;
  let controlName: string;

  before(async () => {
    controlName = new URL(world.installation.controlUrl).pathname.slice(1);
  });
  beforeEach(async () => {
    proxy = await startSilentProxy();
    const config = readConfig({
      ...world.environment,
      DATABASE_URL: proxy.through(world.installation.controlUrl),
    });
    installation = await openInstallation(config);
  });
  afterEach(async () => {
    await installation.close();
    await proxy.close();
  });

  const start = (): Promise<RunningServer> =>
    startServer({ config: world.config, installation, log: world.log, passwords: world.passwords });

  it('a change feed whose notifications no longer arrive is not current until they arrive again', async () => {
    const own = createOwnFeed(world, proxy.through(world.installation.controlUrl));
    const { feed } = own;
    let isInvalidated = false;
    feed.subscribe('users', () => (isInvalidated = true));

    await own.start();
    const earlier = world.logs.length;
    try {
      expect(feed.current).to.equal(true);

      proxy.dropNotifications(controlName, true);
      await eventually(() => !feed.current, announcedMs);
      await eventually(
        () => world.logs.slice(earlier).join('').includes('because notifications do not arrive'),
        announcedMs,
      );

      isInvalidated = false;
      proxy.dropNotifications(controlName, false);
      await eventually(() => feed.current, announcedMs);
      expect(isInvalidated, 'everything was dropped before').to.equal(true);
    } finally {
      await own.stop();
    }
  });

  it('a process that reconnects without notifications is not ready, and revoked sessions end at once', async () => {
    const service = await start();
    const isReady = async () =>
      (await fetch(`http://127.0.0.1:${service.managementPort}/health/ready`)).status === 200;

    try {
      const client: Client = (await world.login(world.acme)).at(`http://127.0.0.1:${service.port}`);
      expect((await client.get(path)).status).to.equal(200);

      proxy.dropNotifications(controlName, true);
      proxy.cut();
      await eventually(async () => !(await isReady()), announcedMs);
      await eventually(async () => (await client.get(path)).status === 200);

      const opened = proxy.opened(controlName);
      // the feed has connected in vain
      await eventually(() => proxy.opened(controlName) > opened + 3);
      expect(await isReady()).to.equal(false);

      await controlSql(world, 'update sessions set revoked_at = now()');
      expect((await client.get(path)).status).to.equal(401);

      proxy.dropNotifications(controlName, false);
      await eventually(isReady, announcedMs);
    } finally {
      await service.stop();
    }
  });

  it('a process to which no notifications arrive does not start, and says why', async () => {
    proxy.dropNotifications(controlName, true);
    const error = await start().then(
      () => undefined,
      (reason: unknown) => reason,
    );
    expect(explain(error)).to.match(
      /^PostgreSQL cannot be used: its notifications do not arrive, .*DATABASE_URL/,
    );
  });
});
