import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect } from 'chai';
import type pg from 'pg';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { withDeadline } from '../../../src/lib/runtime/deadline.ts';
import { LargeReads, Turns } from '../../../src/tenancy/connections/large-reads.ts';
import type { Client } from '../../support/client.ts';
import { errorOf } from '../../support/errors.ts';
import { eventually } from '../../support/eventually.ts';
import { sql, useWorld } from '../../support/world.ts';

const maxOfProcess = 8;

describe('large reads', () => {
  /** A connection on which nothing is received. */
  const silent = { bytesReceived: 0 };

  /** Reads of one tenant, and a list of what they do. */
  function createTenant(turns = new Turns()) {
    const reads = new LargeReads(turns);
    const events: string[] = [];
    const read = (name: string) =>
      reads.run(receive =>
        receive(silent, async () => {
          events.push(`${name} begins`);
          await nextTurn();
          events.push(`${name} ends`);
        }),
      );
    return { reads, events, read };
  }

  it('the large reads of a tenant run one after the other, also when one fails', async () => {
    const { reads, events, read } = createTenant();
    const first = read('first');
    const failing = reads.run(async () => Promise.reject(new Error('lost')));
    const last = read('last');

    expect((await errorOf(failing)).message).to.equal('lost');
    await Promise.all([first, last]);
    expect(events).to.deep.equal(['first begins', 'first ends', 'last begins', 'last ends']);
  });

  it('a turn ends with the work that encodes the result, also when the work fails', async () => {
    const turns = new Turns();
    const { reads, events, read } = createTenant(turns);
    let next: Promise<void> | undefined;
    const work = withDeadline(10_000, async deadline => {
      await reads.run(receive => receive(silent, async () => {}, deadline), deadline);
      next = read('next');
      await nextTurn();
      expect(events).to.deep.equal([]);
      expect(turns.running).to.equal(1);
      throw new Error('not encoded');
    });

    expect((await errorOf(work)).message).to.equal('not encoded');
    await next;
    expect(events).to.deep.equal(['next begins', 'next ends']);
    expect(turns.running).to.equal(0);
  });

  it('work with two large reads does not wait for its own end', async () => {
    const { reads } = createTenant();
    await withDeadline(10_000, async deadline => {
      for (const _ of [1, 2]) await reads.run(receive => receive(silent, async () => {}), deadline);
    });
  });

  it('a process has eight large reads at a time, and one that receives nothing lets other tenants go on', async () => {
    const turns = new Turns();
    let begun = 0;
    const end = Promise.withResolvers<void>();
    const readOf = (receiver: { readonly bytesReceived: number }): Promise<void> =>
      new LargeReads(turns).run(receive =>
        receive(receiver, async () => {
          begun++;
          await end.promise;
        }),
      );

    const receiving = { bytesReceived: 0 };
    const reads = Array.from({ length: maxOfProcess }, () => readOf(receiving));
    const waiting = readOf(silent);
    await nextTurn();
    expect(begun).to.equal(maxOfProcess);
    expect(turns.running).to.equal(maxOfProcess);
    receiving.bytesReceived = 1;

    const silentTurns = new Turns(1);
    const ofSilent = [1, 2].map(() =>
      new LargeReads(silentTurns).run(receive => receive(silent, () => end.promise)),
    );
    await eventually(() => silentTurns.running === 0);
    expect(begun).to.equal(maxOfProcess);

    end.resolve();
    await Promise.all([...reads, waiting, ...ofSilent]);
    expect(begun).to.equal(maxOfProcess + 1);
    expect(turns.running).to.equal(0);
  });
});

describe('large reads of a service', () => {
  const world = useWorld();

  before(async () => {
    await sql(
      world.acme,
      `insert into activities (activity_code, comment, recorded_by, recorded_from)
         select i, repeat('x', 4000), 1, '127.0.0.1' from generate_series(1, 1000) i`,
    );
  });

  it('a tenant has one large list at a time, and small lists beside it', async () => {
    const admin = await world.login(world.acme);
    expect((await admin.get('/api/v1/Activity?limit=1000')).status).to.equal(200);
    await withConnection(world.acme.adminUrl, async client => {
      await client.query('begin; lock table activities in access exclusive mode');
      const large = Array.from({ length: 5 }, () => admin.get('/api/v1/Activity?limit=1000'));
      await eventually(async () => (await countWaiting(client)) === 1);
      const small = [1, 2].map(limit =>
        admin.get(`/api/v1/Activity?sort=-CreatedAt&limit=${limit}`),
      );
      await eventually(async () => (await countWaiting(client)) === 3);
      await afterOthers(admin);
      expect(await countWaiting(client)).to.equal(3);
      await client.query('commit');

      const sizes = (await Promise.all(large)).map(({ body }) => JSON.stringify(body).length);
      expect(Math.min(...sizes)).to.be.above(4_000_000);
      for (const { status } of await Promise.all(small)) expect(status).to.equal(200);
    });
    expect(world.service.databases.largeReads.running).to.equal(0);
  });

  it('lists that are sorted by the key in another direction than their field, or that look for a short word, are read one at a time', async () => {
    const acme = await world.login(world.acme);
    await withConnection(world.acme.adminUrl, async client => {
      await client.query('begin; lock table activities in access exclusive mode');
      const queries = ['sort=Screen,-Id', 'sort=-Screen,Id', 'q=ab', 'q=客户'];
      const reads = queries.map(query => acme.get(`/api/v1/Activity?${query}&limit=10`));
      await eventually(async () => (await countWaiting(client)) > 0);
      await afterOthers(acme);
      expect(await countWaiting(client)).to.equal(1);
      await client.query('commit');

      for (const { status } of await Promise.all(reads)) {
        expect(status).to.equal(200);
      }
    });
  });

  it('lists of one tenant that no index serves are read one at a time, and lists that have an index beside them', async () => {
    const [acme, globex] = [await world.login(world.acme), await world.login(world.globex)];
    const paths = [
      ...['sort=UserId,CreatedAt', 'sort=-CreatedAt,UserId', 'q=nothing'].map(
        query => `/api/v1/Activity?${query}`,
      ),
      ...['sort=StatusTitle', 'filter[StatusTitle]=Active'].map(
        query => `/api/v1/Entities?${query}`,
      ),
    ];

    for (const path of paths) expect((await globex.get(path)).status, path).to.equal(200);

    await withConnection(world.acme.adminUrl, async client => {
      await client.query('begin; lock table activities, entities in access exclusive mode');
      const unindexed = paths.flatMap(path => [acme.get(path), acme.get(path)]);
      await eventually(async () => (await countWaiting(client)) > 0);

      const indexed = [1, 2].map(limit =>
        acme.get(`/api/v1/Activity?sort=-CreatedAt&limit=${limit}`),
      );
      await eventually(async () => (await countWaiting(client)) > 2);
      await afterOthers(acme);
      expect(await countWaiting(client)).to.equal(3);

      await client.query('commit');
      for (const { status } of await Promise.all([...unindexed, ...indexed])) {
        expect(status).to.equal(200);
      }
    });
  });
});

/** Sessions of the database that wait for a lock. */
async function countWaiting(client: pg.Client): Promise<number> {
  // Otherwise a transaction sees the first snapshot again.
  await client.query('select pg_stat_clear_snapshot()');
  const { rows } = await client.query(
    `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
  );
  return rows.length;
}

/** By the end of later requests, the earlier ones have arrived. */
async function afterOthers(client: Client): Promise<void> {
  for (let i = 0; i < 10; i++) await client.get('/api/v1/Countries/DE');
}
