import { expect } from 'chai';
import fc from 'fast-check';
import pg from 'pg';
import { openControlDatabase } from '../../src/control/database.ts';
import { sourceExpression } from '../../src/postgres/server-address.ts';
import { WriteMonitor } from '../../src/response-cache/write-monitor.ts';
import type { Client } from '../support/client.ts';
import { eventually } from '../support/eventually.ts';
import { createWorld, sql, type TestTenant, type World } from '../support/world.ts';
import { MonitoredRecord } from './monitored-record.ts';

const path = '/api/v1/Currency';

describe('write monitor', () => {
  let world: World;
  let client: Client;
  let euro: MonitoredRecord;
  const sessions: pg.Client[] = [];

  before(async () => {
    world = await createWorld();
    client = await world.login(world.acme);
    const { body } = await client.post(path, { Code: 'EUR', Name: 'Euro' });
    euro = new MonitoredRecord(world, world.acme, client, `${path}/${body.Id}`);
  });
  afterEach(async () => {
    await Promise.all(sessions.splice(0).map(session => session.end()));
  });
  after(() => world.close());

  /** Opens a session that is not the service's, like one of psql. It ends with the test. */
  async function connect({ adminUrl }: TestTenant = world.acme): Promise<pg.Client> {
    const session = new pg.Client(adminUrl);
    sessions.push(session);
    await session.connect();
    return session;
  }

  it('a cached response of an unchanged database is served for 10 minutes without a connection', async () => {
    const { revalidations } = await metrics();
    await expectCached(10);
    expect((await metrics()).revalidations - revalidations).to.be.at.least(7);
  });

  it('a cached response is served after another session has read the database and ended', async () => {
    await expectCached(3, async () => {
      const session = await connect();
      await session.query('select * from currencies for update');
      await euro.poll();
      await session.end();
      await euro.disconnectAll();
    });
  });

  /**
   * Expects that the record is served for so many minutes and that the service opens no connection. Retries if a slow
   * machine made the service open one.
   */
  async function expectCached(minutes: number, prepare = async (): Promise<void> => {}): Promise<void> {
    await eventually(async () => {
      await euro.cacheAndDisconnect();
      await prepare();
      const opened = euro.openedConnections;
      for (let i = 0; i < minutes; i++) {
        await euro.advanceMinute();
        expect(await euro.name()).to.equal('Euro');
      }
      return euro.openedConnections === opened;
    });
  }

  it('the write monitor polls at intervals while the cache is used, and pauses while it is not', async () => {
    const { installation, service, log } = world;
    const { controlUrl } = installation;
    // In these sessions, PostgreSQL writes timestamps in another time zone.
    const control = openControlDatabase(`${controlUrl}?options=-c%20timezone%3DAsia/Tokyo`);
    const monitor = new WriteMonitor({ control, controlUrl, databases: service.databases, log, everyMs: 5 });
    await euro.cacheAndDisconnect();
    const select = `select ${sourceExpression('datname', 'oid')} as source from pg_database`;
    const [source] = await sql<{ source: string }>(world.acme, `${select} where datname = current_database()`);
    const until = () => monitor.unchangedUntil(source?.source ?? '', performance.now());
    let uses = 0;
    const using = setInterval(() => uses++, 5);
    try {
      for (let i = 0; i < 2; i++) {
        const polling = monitor.poll();
        const beganAt = performance.now();
        await polling;
        expect(until(), 'the proof ends when the poll begins').to.be.at.most(beganAt);
      }
      const first = until();
      expect(first).to.be.above(0);
      monitor.start(() => uses);
      await eventually(() => until() > first);
      clearInterval(using);
      await eventually(() => performance.now() - until() > 300);
      uses++;
      await eventually(() => performance.now() - until() < 300);
    } finally {
      clearInterval(using);
      await monitor.stop();
      await control.close();
    }
  });

  describe('change outside the service', () => {
    let changeCount = 0;
    const update = (session: pg.Client, name: string) =>
      session.query('update currencies set name = $1 where code = $2', [name, 'EUR']);

    const changes: Record<string, (session: pg.Client, name: string) => Promise<unknown>> = {
      'of a session that has ended': async (session, name) => {
        await update(session, name);
        await session.end();
        await euro.disconnectAll();
      },
      'of a session that stays open': update,
      'of a session that has just reported an earlier change to the counters': async (session, name) => {
        await update(session, 'another one');
        await session.query('select pg_stat_force_next_flush()');
        await update(session, name);
      },
      'of a session with chained transactions': async (session, name) => {
        await session.query('begin');
        await update(session, name);
        await session.query('commit and chain');
      },
    };
    for (const [description, change] of Object.entries(changes)) {
      for (const polls of [0, 2]) {
        it(`a change ${description}, after ${polls} polls, is served within a minute`, async () => {
          const name = `change ${changeCount++}`;
          await euro.cacheAndDisconnect();
          const session = await connect();
          for (let i = 0; i < polls; i++) await euro.advance(10);
          await change(session, name);
          await euro.advanceMinute();
          expect(await euro.name()).to.equal(name);
        });
      }
    }

    it('a change that was made before a read and committed after it is served within a minute', async () => {
      const session = await connect();
      await session.query('begin');
      await update(session, 'committed late');
      await euro.cacheAndDisconnect();
      await session.query('commit');
      await session.end();
      await euro.disconnectAll();
      await euro.advanceMinute();
      expect(await euro.name()).to.equal('committed late');
    });

    it('a change is served within a minute even if polls no longer get a response', async () => {
      await euro.cacheAndDisconnect();
      await euro.advance(10);
      await sql(world.acme, `update currencies set name = 'not monitored'`);
      world.clock.monotonicOffsetMs += 60_000;
      expect(await euro.name()).to.equal('not monitored');
    });

    it('a change before a reset of the counters, which makes them equal again, is served within a minute', async () => {
      await sql(world.acme, 'select pg_stat_reset()');
      await euro.disconnectAll();
      await euro.cacheAndDisconnect();
      await sql(world.acme, `update currencies set name = 'before the reset'`);
      await euro.disconnectAll();
      await sql(world.acme, 'select pg_stat_reset()');
      await euro.disconnectAll();
      await euro.advanceMinute();
      expect(await euro.name()).to.equal('before the reset');
    });

    for (const [title, statement] of [
      ['DDL', 'alter table currencies alter name type text using upper(name)'],
      ['TRUNCATE', 'truncate currencies cascade'],
    ] as const) {
      it(`the effect of ${title} is served within a minute`, async () => {
        await sql(world.acme, `insert into currencies (code, name) values ('EUR', 'euro') on conflict do nothing`);
        await euro.disconnectAll();
        await euro.cacheAndDisconnect();
        const name = await euro.name();
        await sql(world.acme, statement);
        await euro.disconnectAll();
        await euro.advanceMinute();
        expect(await euro.name()).not.to.equal(name);
      });
    }
  });

  it('no response is older than a minute, whichever sessions connect, change and commit, and when', async () => {
    await checkMaxAge();
  });

  async function metrics(): Promise<{ revalidations: number }> {
    const text = await (await fetch(`http://127.0.0.1:${world.service.managementPort}/metrics`)).text();
    return { revalidations: Number(/^response_cache_revalidations_total (\d+)$/m.exec(text)?.[1]) };
  }

  /** Runs random steps of two sessions, each with a record of its own, and of the service that caches both. */
  async function checkMaxAge(): Promise<void> {
    const actor = fc.nat(1);
    const step = fc.oneof(
      fc.record({ act: fc.constantFrom('update', 'begin', 'commit', 'chain', 'end', 'read', 'cache'), actor }),
      fc.record({ act: fc.constantFrom('minute', 'poll', 'disconnect', 'advance', 'read'), actor }),
    );
    const write = fc.record({ act: fc.constantFrom('update', 'begin'), actor });
    const insertion = fc.tuple(fc.nat(27), write);
    const schedule = fc
      .tuple(fc.array(step, { minLength: 12, maxLength: 27 }), fc.tuple(insertion, insertion, insertion))
      .map(([steps, writes]) => writes.reduce((all, [at, each]) => all.toSpliced(at, 0, each), steps));
    const unchanged = ['poll', 'cache', 'minute', 'minute'].map(act => ({ act, actor: 0 }));
    const records = await Promise.all(
      ['one', 'two'].map(async slug => {
        const [row] = await sql<{ id: number }>(
          world.globex,
          'insert into currencies (code, name) values ($1, $2) returning id',
          [slug, 'the first'],
        );
        return { id: row?.id, value: 'the first', pending: '', replaced: new Map<string, number>() };
      }),
    );
    const reader = await world.login(world.globex);
    const monitored = records.map(({ id }) => new MonitoredRecord(world, world.globex, reader, `${path}/${id}`));
    const { revalidations } = await metrics();
    let written = 0;
    const now = () => performance.now() + world.clock.monotonicOffsetMs;

    await fc.assert(
      fc.asyncProperty(schedule, async steps => {
        const open: (pg.Client | undefined)[] = [undefined, undefined];
        for (const { act, actor } of steps) {
          const [record, service] = [records[actor]!, monitored[actor]!];
          const session = async () => (open[actor] ??= await connect(world.globex));
          const write = async () => {
            record.pending = `value ${written++}`;
            const change = 'update currencies set name = $1 where id = $2';
            await (await session()).query(change, [record.pending, record.id]);
          };
          const committed = () => {
            if (record.pending === '') return;
            record.replaced.set(record.value, now());
            [record.value, record.pending] = [record.pending, ''];
          };
          const inTransaction = open[actor]?.getTransactionStatus() === 'T';
          if (act === 'update') {
            await write();
            if (!inTransaction) committed();
          } else if (act === 'begin') {
            if (!inTransaction) await (await session()).query('begin');
            await write();
          } else if (act === 'commit' || act === 'chain') {
            if (!inTransaction) continue;
            await open[actor]?.query(act === 'commit' ? 'commit' : 'commit and chain');
            committed();
          } else if (act === 'end') {
            await open[actor]?.end();
            [open[actor], record.pending] = [undefined, ''];
          } else if (act === 'cache') await service.name();
          else if (act === 'disconnect') await service.disconnect();
          else if (act === 'poll') await service.poll();
          else if (act === 'advance') await service.advance(10);
          else if (act === 'minute') {
            await service.disconnect();
            await service.advanceMinute();
          }
          if (act === 'read' || act === 'minute') {
            const requestedAt = now();
            const name = await service.name();
            if (name !== record.value)
              expect(requestedAt - (record.replaced.get(name ?? '') ?? 0)).to.be.at.most(60_000);
          }
        }
        await Promise.all(open.map(session => session?.end()));
        for (const record of records) record.pending = '';
      }),
      { numRuns: 6, endOnFailure: true, examples: [[unchanged]] },
    );
    expect((await metrics()).revalidations).to.be.greaterThan(revalidations);
    expect(written, 'each schedule but the example has three writes or more').to.be.at.least(3 * 5);
  }
});
