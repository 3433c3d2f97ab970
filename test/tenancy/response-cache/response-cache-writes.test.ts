import { setTimeout as delay } from 'node:timers/promises';
import { expect } from 'chai';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import type { ApiResponse, Client } from '../../support/client.ts';
import { announcedMs, eventually } from '../../support/eventually.ts';
import { readLockWaiters } from '../../support/lock-waiters.ts';
import { sql, type TestTenant, type World } from '../../support/world.ts';
import {
  asOperator,
  type CacheWorld,
  type Clients,
  createCacheWorld,
  currencies,
  feedMs,
  noCache,
} from './cache-world.ts';

describe('response cache during writes', () => {
  let cache: CacheWorld;
  let world: World;
  let acme: Clients;

  before(async () => {
    cache = await createCacheWorld();
    ({ world, acme } = cache);
  });
  after(() => world.close());

  const nameAt: CacheWorld['nameAt'] = (client, headers) => cache.nameAt(client, headers);

  it('a writer that is killed before its change leaves the record unchanged in all processes', async () => {
    await cache.expectEverywhere(await cache.renamed('untouched'));
    await cache.fillCaches(acme);

    await withConnection(world.acme.adminUrl, async session => {
      await session.query(`begin; select from currencies where code = 'EUR' for update`);
      const response = cache.rename(acme[0], 'never');
      const writing = await eventually(async () => (await readLockWaiters(session))[0]);

      await session.query('select pg_terminate_backend($1)', [writing]);
      expect((await response).status).to.equal(503);
      await session.query('rollback');
    });

    await cache.expectEverywhere('untouched');
  });

  it('a change of a record that does not exist is refused without invalidating cached responses', async () => {
    const [client] = acme;
    const { body } = await client.post(currencies, { Code: 'OLD', Name: 'Deleted' });
    const deleted = `${currencies}/${body.Id}`;
    expect((await client.delete(deleted)).status).to.equal(204);
    await cache.fromMemory(reader => reader.get(currencies));

    const missing = `${currencies}/999999`;
    const refused = [
      await client.put(missing, { Code: 'NIL', Name: 'Nothing' }),
      await client.delete(missing),
      await client.delete(deleted),
      await client.post(`${missing}/restore`, {}),
    ];

    expect(refused.map(({ status }) => status)).to.deep.equal([404, 404, 404, 404]);

    await withConnection(world.acme.adminUrl, async session => {
      await session.query('begin; lock table currencies in access exclusive mode');
      for (const reader of acme) expect((await reader.get(currencies)).status).to.equal(200);
      await session.query('rollback');
    });
  });

  it('under concurrent reads and writes every response was current within the last second', async () => {
    await checkCoherence(cache);
  });

  describe('commit', () => {
    const gate = 4711;

    before(() =>
      sql(
        world.acme,
        `create function gate() returns trigger language plpgsql as $$ begin
           perform pg_advisory_xact_lock_shared(${gate});
           if new.name = 'refused at commit' then raise exception 'refused' using errcode = '23514'; end if;
           return null;
         end $$;
         create constraint trigger gate after update on currencies deferrable initially deferred
           for each row execute function gate()`,
      ),
    );
    after(() => sql(world.acme, 'drop function gate() cascade'));

    /**
     * Renames the currency, holds the change in its commit, that is, before its announcement,
     * and runs `duringCommit`.
     * @param duringCommit gets the process of the session that commits
     */
    async function renameHeldInCommit(
      name: string,
      duringCommit: (response: Promise<ApiResponse>, committing: number) => Promise<void>,
    ): Promise<ApiResponse> {
      return withConnection(world.acme.adminUrl, async session => {
        await session.query(`select pg_advisory_lock(${gate})`);
        const response = cache.rename(acme[0], name);
        const committing = await eventually(async () => (await readLockWaiters(session))[0]);
        await duringCommit(response, committing);
        await session.query(`select pg_advisory_unlock(${gate})`);
        return response;
      });
    }

    it('a record that is read during a commit is not served once the change has been announced', async () => {
      await cache.expectEverywhere(await cache.renamed('before it'));

      const { status } = await renameHeldInCommit('after it', async () => {
        for (let i = 0; i < 5; i++) {
          for (const client of acme) expect(await nameAt(client)).to.equal('before it');
        }
        expect(await nameAt(acme[1], noCache)).to.equal('before it');
      });

      expect(status).to.equal(200);
      expect(await nameAt(acme[0])).to.equal('after it');
      await cache.expectEverywhere('after it');
      await cache.fromMemory(async client => expect(await nameAt(client)).to.equal('after it'));
    });

    it('a writer that is killed in its commit leaves the old record in all processes', async () => {
      await cache.expectEverywhere(await cache.renamed('alive'));

      const { status } = await renameHeldInCommit('never', async (response, committing) => {
        for (const client of acme) expect(await nameAt(client)).to.equal('alive');
        await asOperator(`select pg_terminate_backend(${committing})`);
        await response;
      });

      expect(status).to.equal(503);
      await cache.expectEverywhere('alive');
      await cache.fillCaches(acme);
      await cache.expectEverywhere(await cache.renamed('and again'));
    });

    it('after a failed commit, all processes return the old record', async () => {
      await cache.expectEverywhere(await cache.renamed('accepted'));
      await cache.fillCaches(acme);
      expect((await cache.rename(acme[0], 'refused at commit')).status).to.be.at.least(400);
      for (const client of acme) expect(await nameAt(client)).to.equal('accepted');
      await cache.expectEverywhere(await cache.renamed('accepted again'));
    });
  });
});

/**
 * A value that a request wrote. It became current at one moment between the two times of
 * `performance.now()`.
 */
interface Write {
  value: string;
  process: number;
  beganAt: number;
  endedAt: number;
}

/** One field of one record, with every value that a request wrote to it. */
interface Register {
  tenant: TestTenant;
  clients: Clients;
  path: string;
  list: string;
  field: string;
  rest: object;
  table: string;
  column: string;
  writes: Map<string, Write>;
}

const [minRunMs, minReads, minWrites] = [1_500, 100, 30];
const idOf = (path: string) => Number(path.split('/').at(-1));

/**
 * Runs writers and readers in both processes for at least 1.5 s, and until they have done
 * enough on a busy machine too, over three resources of two tenants. A read is at fault if its
 * value had certainly been replaced: a later write had been responded to before the read began,
 * in the same process or for a read past the cache; a second before, in the other process.
 */
async function checkCoherence(cache: CacheWorld): Promise<void> {
  const registers = await createRegisters(cache);
  const until = performance.now() + minRunMs;
  let [reads, written] = [0, 0];
  const isRunning = (): boolean =>
    performance.now() < until || reads <= minReads || written <= minWrites;
  const faults: string[] = [];

  const writer = async (n: number): Promise<void> => {
    for (let i = 0; isRunning(); i++) {
      const { clients, path, field, rest, writes } = registers[
        (n + i) % registers.length
      ] as Register;
      const process = (n + i) % 2;
      const value = `by ${n}, ${i}`;

      const write = {
        value,
        process,
        beganAt: performance.now(),
        endedAt: Number.POSITIVE_INFINITY,
      };
      writes.set(value, write);

      const { status } = await (clients[process] as Client).put(path, { ...rest, [field]: value });
      expect(status).to.equal(200);
      write.endedAt = performance.now();
      written++;

      // Bursts of changes, and pauses in which responses are cached.
      if (i % 4 === n) await delay(120);
    }
  };
  const reader = async (n: number): Promise<void> => {
    for (let i = 0; isRunning(); i++) {
      const { clients, path, list, field, writes } = registers[
        (n * 5 + i) % registers.length
      ] as Register;
      const process = (n + (i >> 2)) % 2;
      const isUncached = i % 7 === 0;

      const beganAt = performance.now();
      const { body } = await (clients[process] as Client).get(
        i % 3 === 0 ? list : path,
        isUncached ? noCache : {},
      );

      const row = Array.isArray(body) ? body.find(({ Id }) => Id === idOf(path)) : body;
      const read = writes.get(row[field]);
      const newer = [...writes.values()].find(
        write =>
          read &&
          write.beganAt >= read.endedAt &&
          write.endedAt + (write.process === process || isUncached ? 0 : feedMs) <= beganAt,
      );

      if (!read || newer) {
        faults.push(
          `${path} at ${process}: ${row[field]}, after ${newer?.value} of ${newer?.process}`,
        );
      }

      reads++;
    }
  };
  await Promise.all([...[0, 1, 2, 3].map(writer), ...[0, 1, 2, 3, 4, 5].map(reader)]);
  expect(faults).to.deep.equal([]);
  await Promise.all(registers.map(expectAgreement));
  if (process.env.MEASURE) process.stdout.write(`model: ${reads} reads, ${written} writes\n`);
}

async function createRegisters({
  world,
  acme,
  globex,
  currencyPath,
}: CacheWorld): Promise<Register[]> {
  const registers: Register[] = [];
  for (const [tenant, clients] of [
    [world.acme, acme],
    [world.globex, globex],
  ] as const) {
    const option = await clients[0].post('/api/v1/SystemOptions', {
      SystemOptionTypeId: 1,
      Value: 'start',
    });

    const currency = {
      list: currencies,
      field: 'Name',
      rest: { Code: 'EUR' },
      table: 'currencies',
      column: 'name',
    };
    const status = {
      list: '/api/v1/EntityStatus',
      field: 'Title',
      rest: {},
      table: 'entity_statuses',
      column: 'title',
    };

    const options = '/api/v1/SystemOptions';
    const systemOption = { list: options, field: 'Value', rest: { SystemOptionTypeId: 1 } };

    for (const record of [
      { ...currency, path: currencyPath },
      { ...status, path: '/api/v1/EntityStatus/3' },
      {
        ...systemOption,
        path: `${options}/${option.body.Id}`,
        table: 'system_options',
        column: 'value',
      },
    ]) {
      const { path, rest, field } = record;
      const first = { value: 'the first', process: 0, beganAt: 0, endedAt: 0 };

      await clients[0].put(path, { ...rest, [field]: first.value });
      first.endedAt = performance.now() - feedMs;
      await eventually(async () => (await clients[1].get(path)).body[field] === first.value);
      registers.push({ ...record, tenant, clients, writes: new Map([[first.value, first]]) });
    }
  }

  return registers;
}

/**
 * Expects the stored value from both processes, at the latest after the delay of the feed, and
 * from then on.
 */
async function expectAgreement({
  tenant,
  clients,
  path,
  field,
  table,
  column,
}: Register): Promise<void> {
  const [stored] = await sql<{ value: string }>(
    tenant,
    `select ${column} as value from ${table} where id = $1`,
    [idOf(path)],
  );
  for (const client of clients) {
    await eventually(
      async () => (await client.get(path)).body[field] === stored?.value,
      announcedMs,
    );
    for (let i = 0; i < 3; i++) {
      expect((await client.get(path)).body[field]).to.equal(stored?.value);
    }
  }
}
