import { expect } from 'chai';
import fc from 'fast-check';
import pg from 'pg';
import { openControlDatabase } from '../../src/control/database.ts';
import { sourceExpression } from '../../src/postgres/server-address.ts';
import { WriteMonitor } from '../../src/response-cache/write-monitor.ts';
import type { Client } from '../support/client.ts';
import { eventually } from '../support/eventually.ts';
import { createWorld, sql, type TestTenant, type World } from '../support/world.ts';
import { Watched } from './monitored.ts';

const path = '/api/v1/Currency';

describe('What nobody writes to', () => {
  let world: World;
  let client: Client;
  let acme: Watched;
  const sessions: pg.Client[] = [];

  before(async () => {
    world = await createWorld();
    client = await world.login(world.acme);
    const { body } = await client.post(path, { Code: 'EUR', Name: 'Euro' });
    acme = new Watched(world, world.acme, client, `${path}/${body.Id}`);
  });
  afterEach(async () => {
    await Promise.all(sessions.splice(0).map(session => session.end()));
  });
  after(() => world.close());

  /** A session of psql, as it were, which is there until the test is over. */
  async function connect({ adminUrl }: TestTenant = world.acme): Promise<pg.Client> {
    const session = new pg.Client(adminUrl);
    sessions.push(session);
    await session.connect();
    return session;
  }

  it('is not read again, and needs no connection', async () => {
    const { revalidations } = await metrics();
    await stays(10);
    expect((await metrics()).revalidations - revalidations).to.be.at.least(7);
  });

  it('is not read again either when somebody was connected meanwhile, and wrote nothing', async () => {
    await stays(3, async () => {
      const session = await connect();
      await session.query('select * from currencies for update');
      await acme.poll();
      await session.end();
      await acme.left();
    });
  });

  /** What is kept is given out for so many minutes, though no connection is opened. Tried again if this machine was too slow. */
  async function stays(minutes: number, first = async (): Promise<void> => {}): Promise<void> {
    await eventually(async () => {
      await acme.keep();
      await first();
      const { opened } = acme;
      for (let i = 0; i < minutes; i++) {
        await acme.minute();
        expect(await acme.name()).to.equal('Euro');
      }
      return acme.opened === opened;
    });
  }

  it('is known by polls that begin by themselves, and end when nobody asks for what is kept', async () => {
    const { installation, service, log } = world;
    const { controlUrl } = installation;
    // Sessions in which moments are written otherwise.
    const control = openControlDatabase(`${controlUrl}?options=-c%20timezone%3DAsia/Tokyo`);
    const watch = new WriteMonitor({ control, controlUrl, databases: service.databases, log, everyMs: 5 });
    await acme.keep();
    const [source] = await sql<{ source: string }>(
      world.acme,
      `select ${sourceExpression('current_database()')} as source`,
    );
    const until = () => watch.unchangedUntil(source?.source ?? '', performance.now());
    let uses = 0;
    const using = setInterval(() => uses++, 5);
    try {
      for (let i = 0; i < 2; i++) {
        const polling = watch.poll();
        const began = performance.now();
        await polling;
        expect(until(), 'what comes after its beginning').to.be.at.most(began);
      }
      const first = until();
      expect(first).to.be.above(0);
      watch.start(() => uses);
      await eventually(() => until() > first);
      clearInterval(using);
      await eventually(() => performance.now() - until() > 300);
      uses++;
      await eventually(() => performance.now() - until() < 300);
    } finally {
      clearInterval(using);
      await watch.stop();
      await control.close();
    }
  });

  describe('is read again within a minute after', () => {
    let nth = 0;
    const update = (session: pg.Client, name: string) =>
      session.query('update currencies set name = $1 where code = $2', [name, 'EUR']);

    const changes: Record<string, (session: pg.Client, name: string) => Promise<unknown>> = {
      'a change by a session that has ended': async (session, name) => {
        await update(session, name);
        await session.end();
        await acme.left();
      },
      'a change by a session that stays': update,
      'a change by a session that has told of another one a moment ago': async (session, name) => {
        await update(session, 'another one');
        await session.query('select pg_stat_force_next_flush()');
        await update(session, name);
      },
      'a change by a session whose transactions follow one another': async (session, name) => {
        await session.query('begin');
        await update(session, name);
        await session.query('commit and chain');
      },
    };
    for (const [title, change] of Object.entries(changes)) {
      for (const polls of [0, 2]) {
        it(`${title}, with ${polls} polls before it`, async () => {
          const name = `change ${nth++}`;
          await acme.keep();
          const session = await connect();
          for (let i = 0; i < polls; i++) await acme.pass(10);
          await change(session, name);
          await acme.minute();
          expect(await acme.name()).to.equal(name);
        });
      }
    }

    it('a change that was made before the answer was read, and committed after it', async () => {
      const session = await connect();
      await session.query('begin');
      await update(session, 'committed late');
      await acme.keep();
      await session.query('commit');
      await session.end();
      await acme.left();
      await acme.minute();
      expect(await acme.name()).to.equal('committed late');
    });

    it('a change when no poll is answered any more', async () => {
      await acme.keep();
      await acme.pass(10);
      await sql(world.acme, `update currencies set name = 'unwatched'`);
      world.clock.monotonicOffsetMs += 60_000;
      expect(await acme.name()).to.equal('unwatched');
    });

    it('a reset of the counters, which makes them what they were', async () => {
      await sql(world.acme, 'select pg_stat_reset()');
      await acme.left();
      await acme.keep();
      await sql(world.acme, `update currencies set name = 'before the reset'`);
      await acme.left();
      await sql(world.acme, 'select pg_stat_reset()');
      await acme.left();
      await acme.minute();
      expect(await acme.name()).to.equal('before the reset');
    });

    for (const [title, statement] of [
      ['DDL', 'alter table currencies alter name type text using upper(name)'],
      ['TRUNCATE', 'truncate currencies cascade'],
    ] as const) {
      it(title, async () => {
        await sql(world.acme, `insert into currencies (code, name) values ('EUR', 'euro') on conflict do nothing`);
        await acme.left();
        await acme.keep();
        const name = await acme.name();
        await sql(world.acme, statement);
        await acme.left();
        await acme.minute();
        expect(await acme.name()).not.to.equal(name);
      });
    }
  });

  it('is never given out older than a minute, whoever is connected and changes it, and whenever it is looked at', async () => {
    await model();
  });

  async function metrics(): Promise<{ revalidations: number }> {
    const text = await (await fetch(`http://127.0.0.1:${world.service.managementPort}/metrics`)).text();
    return { revalidations: Number(/^response_cache_revalidations_total (\d+)$/m.exec(text)?.[1]) };
  }

  /** Two sessions, each with a record of its own. */
  async function model(): Promise<void> {
    const actor = fc.nat(1);
    const step = fc.oneof(
      fc.record({ act: fc.constantFrom('update', 'begin', 'commit', 'chain', 'end', 'read', 'keep'), actor }),
      fc.record({ act: fc.constantFrom('minute', 'poll', 'leave', 'pass', 'read'), actor }),
    );
    const quiet = ['poll', 'keep', 'minute', 'minute'].map(act => ({ act, actor: 0 }));
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
    const watched = records.map(({ id }) => new Watched(world, world.globex, reader, `${path}/${id}`));
    const { revalidations } = await metrics();
    let written = 0;
    const now = () => performance.now() + world.clock.monotonicOffsetMs;

    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 15, maxLength: 30 }), async steps => {
        const open: (pg.Client | undefined)[] = [undefined, undefined];
        for (const { act, actor } of steps) {
          const [record, it] = [records[actor]!, watched[actor]!];
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
          } else if (act === 'keep') await it.name();
          else if (act === 'leave') await it.leave();
          else if (act === 'poll') await it.poll();
          else if (act === 'pass') await it.pass(10);
          else if (act === 'minute') {
            await it.leave();
            await it.minute();
          }
          if (act === 'read' || act === 'minute') {
            const asked = now();
            const name = await it.name();
            if (name !== record.value) expect(asked - (record.replaced.get(name ?? '') ?? 0)).to.be.at.most(60_000);
          }
        }
        await Promise.all(open.map(session => session?.end()));
        for (const record of records) record.pending = '';
      }),
      { numRuns: 25, endOnFailure: true, examples: [[quiet]] },
    );
    expect((await metrics()).revalidations).to.be.greaterThan(revalidations);
    expect(written).to.be.greaterThan(50);
  }
});
