import { randomUUID } from 'node:crypto';
import { expect } from 'chai';
import { Announcer } from '../../src/control/announcer.ts';
import { changeChannel, changeTopics } from '../../src/control/change-topics.ts';
import {
  type ControlDatabase,
  openControlDatabase,
  queryControl,
} from '../../src/control/database.ts';
import { withConnection } from '../../src/lib/postgres/connection.ts';
import { errorOf } from '../support/errors.ts';
import { eventually } from '../support/eventually.ts';
import { type KindProxy, startKindProxy } from '../support/kind-proxy.ts';
import { useWorld } from '../support/world.ts';

const maxKept = 10_000;
const topic = changeTopics.responses;

describe('announcer', () => {
  const world = useWorld();
  let proxy: KindProxy;
  let control: ControlDatabase;
  let announcer: Announcer;

  beforeEach(async () => {
    const { controlUrl } = world.installation;
    proxy = await startKindProxy(controlUrl);
    control = openControlDatabase(proxy.through(controlUrl));
    announcer = new Announcer(control);
  });
  afterEach(async () => {
    await announcer.stop();
    await control.close();
    proxy.close();
  });

  /** Runs `work` while it receives all announcements of tenants in `guids`. */
  function listening(
    guids: readonly string[],
    work: (received: string[]) => Promise<void>,
  ): Promise<void> {
    return withConnection(world.installation.controlUrl, async listener => {
      const received: string[] = [];
      listener.on('notification', ({ payload = '' }) => {
        if (guids.some(guid => payload.includes(guid))) received.push(payload);
      });
      await listener.query(`listen ${changeChannel}`);
      await work(received);
    });
  }

  it('announcements that are made together are sent once each, and accepted when their promise resolves', async () => {
    const guid = randomUUID();
    await listening([guid], async received => {
      const keys = [`${guid}/Currency`, `${guid}/TaxCode`, `${guid}/Currency`];

      await Promise.all(keys.map(key => announcer.announce(topic, key)));

      await eventually(() => received.length >= 2);
      expect(received.sort()).to.deep.equal([
        `${topic}:${guid}/Currency`,
        `${topic}:${guid}/TaxCode`,
      ]);
    });
  });

  it('announcements that cannot be sent are kept, at most 10,000 and one for each further tenant, and sent later', async () => {
    const guid = randomUUID();
    const other = randomUUID();
    proxy.set('control', { isCut: true });

    await listening([guid, other], async received => {
      const kept = Array.from({ length: maxKept }, (_, n) =>
        announcer.announce(topic, `${guid}/${n}`),
      );
      const beyond = ['A', 'B', 'C'].map(resource =>
        announcer.announce(topic, `${other}/${resource}`),
      );
      const refused = await errorOf(queryControl(control, 'probe', 'select 1', []));
      expect(refused.message).to.not.equal('');
      proxy.set('control');

      await Promise.all([...kept, ...beyond]);

      // One whose acceptance comes late on a busy machine is sent again.
      const distinct = () => new Set(received);
      await eventually(() => distinct().size > maxKept);
      expect(distinct().size).to.equal(maxKept + 1);
      expect(received).to.include(`${topic}:${other}`);
    });
  });

  it('an announcement gets a connection of the pool before all requests that wait for one', async () => {
    const pool = await control.em.getConnection().getNativeClient();
    let isLoaded = true;
    // Each waits for its turn, so the queue is never shorter than 100. One that has waited too
    // long on a busy machine waits again.
    const waiting = Array.from({ length: 100 }, async () => {
      while (isLoaded) await pool.query('select pg_sleep(0.05)').catch(() => {});
    });
    await eventually(() => pool.waitingCount >= 90);

    await announcer.announce(topic, `${randomUUID()}/Currency`);

    expect(pool.waitingCount).to.be.above(50);
    isLoaded = false;
    await Promise.all(waiting);
  });
});
