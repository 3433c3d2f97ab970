import { expect } from 'chai';
import fc from 'fast-check';
import type pg from 'pg';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import {
  type DatabaseCounters,
  isProvedUnchanged,
  readDatabaseCounters,
  readTableFingerprints,
} from '../../../src/lib/postgres/change-counters.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { createDedicatedServer, type DedicatedServer } from '../../support/dedicated-server.ts';
import { eventually } from '../../support/eventually.ts';
import {
  createProofDatabase,
  type ProofDatabase,
  schedule,
} from '../../support/proof-schedules.ts';
import { useScratchDatabases } from '../../support/scratch-databases.ts';

describe('proof that a database has not changed', () => {
  let database: ProofDatabase;

  before(async () => {
    database = await createProofDatabase();
  });
  after(() => database.close());

  /** Polls until no session is connected. */
  const pollUnused = () =>
    eventually(async () => {
      const counters = await database.poll();
      return counters?.isUnused && counters;
    });

  it('no committed change is ever missed, in whatever order writers and runs take their steps', async () => {
    const run = async (steps: Parameters<ProofDatabase['run']>[0]): Promise<void> => {
      const { missed, proved } = await database.run(steps);
      expect(missed, 'changes were missed').to.equal(0);
      expect(proved, 'proofs').to.be.greaterThan(0);
    };
    // More of them: npm run drill -- change-proof
    await fc.assert(fc.asyncProperty(schedule, run), { numRuns: 12 });
  });

  it('a reset of the counters counts as a change, and so does a database with a session', async () => {
    const before = await pollUnused();
    expect(isProvedUnchanged(before.fingerprint, await database.poll())).to.equal(true);
    await withConnection(database.url, client => client.query('select pg_stat_reset()'));
    const after = await pollUnused();
    expect(isProvedUnchanged(before.fingerprint, after)).to.equal(false);
    expect(isProvedUnchanged(null, after)).to.equal(false);
    expect(isProvedUnchanged(after.fingerprint, undefined)).to.equal(false);
    expect(isProvedUnchanged(after.fingerprint, { ...after, isUnused: false })).to.equal(false);
  });

  it('a change of the schema, and a truncation, count as changes of the database', async () => {
    for (const change of [
      'create index by_hand on entries (value)',
      'drop index by_hand',
      'truncate entries',
    ]) {
      const before = await pollUnused();
      await withConnection(database.url, client => client.query(change));
      expect(isProvedUnchanged(before.fingerprint, await pollUnused()), change).to.equal(false);
    }
  });
});

describe('proof that a table has not changed', () => {
  const createScratch = useScratchDatabases();
  let url: string;

  beforeEach(async () => {
    url = await createScratch();
    await run(
      'create table entries (value integer); create table others (value integer); insert into entries values (1)',
    );
  });

  /** Runs SQL in a session of its own, which has counted its changes when it has ended. */
  async function run(text: string): Promise<void> {
    const pid = await withConnection(url, async client => {
      await client.query(text);
      return pidOf(client);
    });
    await eventually(() =>
      withConnection(url, async client => {
        const { rowCount } = await client.query('select from pg_stat_activity where pid = $1', [
          pid,
        ]);
        return rowCount === 0;
      }),
    );
  }

  const read = () => withConnection(url, readTableFingerprints);

  it('an insert changes one of the two fingerprints of its table, any other change changes both, and none those of another table', async () => {
    const changes: Record<string, ('all' | 'withoutInserts')[]> = {
      'insert into entries values (2)': ['all'],
      'update entries set value = 3 where value = 2': ['all', 'withoutInserts'],
      'delete from entries where value = 3': ['all', 'withoutInserts'],
      'begin; truncate entries; insert into entries values (1); commit': ['all', 'withoutInserts'],
      'alter table entries alter value type bigint': ['all', 'withoutInserts'],
      'select * from entries': [],
    };

    for (const [change, expected] of Object.entries(changes)) {
      const before = await read();
      await run(change);
      const after = await read();

      const [first, second] = [before.get('entries'), after.get('entries')];
      const changed = (['all', 'withoutInserts'] as const).filter(
        which => first?.[which] !== second?.[which],
      );
      expect(changed, change).to.deep.equal(expected);
      expect(after.get('others'), change)
        .to.deep.equal(before.get('others'))
        .and.to.be.an('object');
    }
  });

  it('a reset of the counters of one table counts as a change', async () => {
    const before = await read();
    await run(`select pg_stat_reset_single_table_counters('entries'::regclass)`);
    await run('insert into entries values (1)'); // as many as before the reset
    const after = await read();
    expect(after.get('entries')?.all).not.to.equal(before.get('entries')?.all);
    expect(after.get('entries')?.withoutInserts).not.to.equal(
      before.get('entries')?.withoutInserts,
    );
  });

  it('a session that does not count its changes reads no fingerprints', async () => {
    const fingerprints = await withConnection(url, async client => {
      await client.query('set track_counts = off');
      return readTableFingerprints(client);
    });
    expect(fingerprints.size).to.equal(0);
  });
});

describe('counters of a server that crashes, prepares transactions, or lets roles change rows without counting', () => {
  let server: DedicatedServer;

  before(async () => {
    server = await createDedicatedServer(['max_prepared_transactions=2', 'synchronous_commit=on']);
    await server.sql('create database counted');
    await server.sql('create table entries (value integer)', 'counted');
  });
  after(() => server.close());

  const poll = () =>
    eventually(async () => {
      const counters = (await withConnection(server.url, readDatabaseCounters)).get('counted');
      return counters?.isUnused && counters;
    });

  it('a change that one session has prepared counts when another one commits it', async () => {
    const before = await poll();
    await server.sql(
      `begin; insert into entries values (1); prepare transaction 'entry'`,
      'counted',
    );
    await server.sql(`commit prepared 'entry'`, 'counted');
    expect(isProvedUnchanged(before.fingerprint, await poll())).to.equal(false);
  });

  it('no fingerprints are read while a role, or a database, may change rows without counting', async () => {
    await server.sql('create role quiet');

    for (const owner of ['role quiet', 'database counted']) {
      await server.sql(`alter ${owner} set track_counts = off`);
      const counters = await withConnection(server.url, readDatabaseCounters);
      const tables = await withConnection(
        databaseUrl(server.url, 'counted'),
        readTableFingerprints,
      );
      expect(counters.size, owner).to.equal(0);
      expect(tables.size, owner).to.equal(0);

      await server.sql(`alter ${owner} reset track_counts`);
      expect((await poll()).name).to.equal('counted');
    }
  });

  it('a crash counts as a change, although the counters are equal after each one', async () => {
    await crash();
    const before = await poll();
    await crash();
    const after = await poll();
    const counted = ({ fingerprint }: DatabaseCounters) => fingerprint.split(' ').slice(0, -1);
    expect(counted(after)).to.deep.equal(counted(before));
    expect(isProvedUnchanged(before.fingerprint, after)).to.equal(false);
  });

  /**
   * Kills a session, after which the server ends all others, recovers, and loses its counters.
   */
  async function crash(): Promise<void> {
    await withConnection(server.url, async session => {
      process.kill(await pidOf(session), 'SIGKILL');
      await session.query('select pg_sleep(60)').catch(() => {});
    });
    // The server runs until this process has joined it again, and leaves it at the end of the
    // test.
    const members = `select from pg_stat_activity where application_name like '%embedded'`;
    await eventually(async () => (await server.sql(members).catch(() => [])).length > 0, 30_000);
  }
});

async function pidOf(client: pg.Client): Promise<number> {
  const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid');
  return rows[0]?.pid ?? Number.NaN;
}
