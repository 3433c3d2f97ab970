import { expect } from 'chai';
import { type Read, ReadMemory } from '../../src/connections/read-memory.ts';
import { LargeReads } from '../../src/connections/tenant-reads.ts';
import { withConnection } from '../../src/postgres/connection.ts';
import { type Deadline, withDeadline } from '../../src/runtime/deadline.ts';
import { errorOf } from '../support/errors.ts';
import { eventually } from '../support/eventually.ts';
import { readLockWaiters } from '../support/lock-waiters.ts';
import { sql, useWorld } from '../support/world.ts';

const mebibyte = 1024 * 1024;
const nextTurn = () => new Promise(setImmediate);

describe('large reads', () => {
  const createReads = () => new LargeReads(new ReadMemory(100 * mebibyte));
  const readBytes = (reads: LargeReads, statement: string, bytes: number, deadline?: Deadline) =>
    reads.run(statement, async read => read.receive(bytes), deadline);

  /** Returns the largest number of the reads that ran at the same time. */
  async function concurrency(reads: LargeReads, statement: string, bytes: number): Promise<number> {
    let running = 0;
    let max = 0;
    const query = async (read: Read) => {
      max = Math.max(max, ++running);
      await nextTurn();
      running--;
      read.receive(bytes);
    };
    await Promise.all(Array.from({ length: 5 }, () => reads.run(statement, query)));
    return max;
  }

  it('reads of a statement with a large response run one at a time, and reads of others concurrently', async () => {
    const reads = createReads();
    expect(await concurrency(reads, 'list', mebibyte)).to.equal(5);
    expect(await concurrency(reads, 'list', mebibyte)).to.equal(1);
    expect(await concurrency(reads, 'record', 100)).to.equal(5);
  });

  it('a failed large read does not block the next one', async () => {
    const reads = createReads();
    await readBytes(reads, 'list', mebibyte);
    const failing = reads.run('list', async () => Promise.reject(new Error('lost')));
    const next = reads.run('list', async () => 2);
    expect((await errorOf(failing)).message).to.equal('lost');
    expect(await next).to.equal(2);
  });

  it('a large result counts until the work that holds it has ended, also when the work fails', async () => {
    const memory = new ReadMemory(100 * mebibyte);
    const reads = new LargeReads(memory);
    const work = withDeadline(10_000, async deadline => {
      await readBytes(reads, 'list', mebibyte, deadline);
      await readBytes(reads, 'list', mebibyte, deadline);
      expect(memory.bytes).to.equal(2 * mebibyte);
      throw new Error('not encoded');
    });
    expect((await errorOf(work)).message).to.equal('not encoded');
    expect(memory.bytes).to.equal(0);
  });

  it('work with two large reads does not wait for other reads of its tenant, which wait for its end', async () => {
    const reads = createReads();
    await readBytes(reads, 'list', mebibyte);
    const query = async (read: Read) => {
      let isPaused = false;
      const resumed = Promise.withResolvers<void>();
      read.source = { pause: () => (isPaused = true), resume: resumed.resolve };
      read.receive(mebibyte);
      if (isPaused) await resumed.promise;
      await nextTurn();
    };
    const events: string[] = [];
    const work = (name: string) =>
      withDeadline(10_000, async deadline => {
        for (const read of [1, 2]) {
          await reads.run('list', query, deadline);
          events.push(`${name}${read}`);
          await nextTurn();
        }
      });
    await Promise.all([work('A'), work('B')]);
    expect(events).to.deep.equal(['A1', 'A2', 'B1', 'B2']);
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

  it('the first large reads of a statement hold one result in memory, and 512 KiB each of the others', async () => {
    const { readMemory } = world.service.databases;
    const admin = await world.login(world.acme);
    expect((await admin.get('/api/v1/Activity?limit=1')).status).to.equal(200);
    let max = 0;
    const probe = setInterval(() => (max = Math.max(max, readMemory.bytes)), 0);
    const responses = await Promise.all(Array.from({ length: 5 }, () => admin.get('/api/v1/Activity?limit=1000')));
    clearInterval(probe);
    const sizes = responses.map(({ body }) => JSON.stringify(body).length);
    expect(Math.min(...sizes)).to.be.above(4_000_000);
    expect(max).to.be.within(4_000_000, 4_500_000 + 4 * (mebibyte / 2 + 2 * 65_536));
    expect(readMemory.bytes).to.equal(0);
  });

  it('lists of one tenant that no index serves are read one at a time, and lists that have an index beside them', async () => {
    const [acme, globex] = [await world.login(world.acme), await world.login(world.globex)];
    const paths = [
      ...['sort=UserId,CreatedAt', 'sort=-CreatedAt,UserId', 'q=nothing'].map(query => `/api/v1/Activity?${query}`),
      ...['sort=StatusTitle', 'filter[StatusTitle]=Active'].map(query => `/api/v1/Entities?${query}`),
    ];
    for (const path of paths) expect((await globex.get(path)).status, path).to.equal(200);
    await withConnection(world.acme.adminUrl, async client => {
      const countWaiting = async (): Promise<number> => (await readLockWaiters(client)).length;
      await client.query('begin; lock table activities, entities in access exclusive mode');
      const unindexed = paths.flatMap(path => [acme.get(path), acme.get(path)]);
      await eventually(async () => (await countWaiting()) > 0);
      const indexed = [1, 2].map(limit => acme.get(`/api/v1/Activity?sort=-CreatedAt&limit=${limit}`));
      await eventually(async () => (await countWaiting()) > 2);
      // By the end of later requests, the earlier ones have arrived.
      for (let i = 0; i < 10; i++) await acme.get('/api/v1/Currency', { 'Cache-Control': 'no-cache' });
      expect(await countWaiting()).to.equal(3);
      await client.query('commit');
      for (const { status } of await Promise.all([...unindexed, ...indexed])) expect(status).to.equal(200);
    });
  });
});
