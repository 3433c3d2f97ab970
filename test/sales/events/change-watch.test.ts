import { randomUUID } from 'node:crypto';
import { expect } from 'chai';
import { openControlDatabase } from '../../../src/control/database.ts';
import { createDirectory } from '../../../src/control/directory.ts';
import { ChangeWatch } from '../../../src/sales/events/change-watch.ts';
import { createIdleFeed } from '../../support/own-feed.ts';
import { useWorld } from '../../support/world.ts';

describe('the watch of changes', () => {
  const world = useWorld();

  it('a poll of 100 tenants that are not in memory is one query, so that after an outage no request waits for it', async () => {
    const { acme, installation, log } = world;
    const { controlUrl, secrets } = installation;
    const control = openControlDatabase(controlUrl);
    const announce = async (): Promise<void> => {};
    const feed = createIdleFeed(world);
    const directory = createDirectory({ control, controlUrl, secrets, feed, log });
    const databases = { open: () => expect.fail(), lastUsedOn: () => undefined };
    const options = { control, feed, announce, databases, directory, processId: randomUUID(), log };
    const watch = new ChangeWatch(options);

    let queries = 0;
    (await control.em.getConnection().getNativeClient()).on('acquire', () => queries++);

    const guids = [acme.guid, ...Array.from({ length: 99 }, () => randomUUID())];
    await new Promise<void>(resolve => {
      for (const guid of guids) watch.subscribe(guid, resolve);
    });

    expect(queries).to.equal(1);

    await watch.stop();
    await control.close();
  });
});
