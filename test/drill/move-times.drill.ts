import { expect } from 'chai';
import { withConnection } from '../../src/lib/postgres/connection.ts';
import type { MoveSummary } from '../../src/operator/databases/verbs/move-tenant.ts';
import {
  canonicalTextSettings,
  identityTables,
  listDataTables,
  readTableChecksums,
} from '../../src/operator/schema/tenant-tables.ts';
import { largeTenantSql } from '../support/large-tenant.ts';
import { lostOrDoubled, type MixedWrites, writeSteadily } from '../support/mixed-writes.ts';
import { compareWithCalm } from '../support/others-times.ts';
import { sendSteadily, summaryOf } from '../support/steady-load.ts';
import { TwoServers } from '../support/two-servers.ts';
import { use } from '../support/use.ts';
import { sql } from '../support/world.ts';

const path = '/api/v1/EntityStatus';
const moves = Number(process.env.MOVES ?? 20);
/** The number of moves there and back of a tenant with nearly nothing. */
const rounds = Number(process.env.ROUNDS ?? 100);
/** About 500 MB with the indexes. */
const largeRows = Number(process.env.LARGE_ROWS ?? 350_000);
const largeMoves = 2;
const calmMs = 20_000;

/** Run it on a quiet machine: it measures times. */
describe('drill: times of moves', function () {
  this.timeout(3_600_000);
  const servers = use(() => TwoServers.start({ ACQUIRE_TIMEOUT_MS: '9000' }, ['max_wal_size=4GB']));

  /**
   * Moves a tenant as often, there and back. The pause is estimated, and must be at most that
   * of a move by default.
   */
  async function moveOften(slug: string, times: number, after?: (count: number) => Promise<void>) {
    const all: MoveSummary[] = [];
    for (let count = 0; count < times; count++) {
      all.push(await servers.move(slug, '--to', await servers.otherServer(slug), '--pause', '1'));
      await after?.(count);
    }
    return all;
  }

  /** Expects that the database of a tenant has each of these writes once. */
  async function expectOnce(writes: MixedWrites, slug: string): Promise<void> {
    const url = await servers.currentUrl(slug);
    expect(await withConnection(url, client => lostOrDoubled(writes, [client]))).to.deep.equal([]);
  }

  it('a tenant of 10 MB under 50 writes a second waits for at most 300 ms in most moves and 1 s in each, and loses no write', async () => {
    // The size of rows and indexes, beside the 9 MB that every database has.
    for (const statement of largeTenantSql(3_800)) await sql(servers.world.acme, statement);
    const acme = await servers.world.login(servers.world.acme);

    const moving = moveOften('acme', moves);
    const writes = await writeSteadily(acme, 50, moving);
    const done = await moving;

    const pauses = done.map(({ pauseMs }) => pauseMs).sort((a, b) => a - b);
    const [p50 = 0, worst = 0] = [pauses[pauses.length >> 1], pauses.at(-1)];
    console.log({
      MB: (done[0]?.bytes ?? 0) / 1e6,
      moves,
      pauseP50: p50,
      worstPause: worst,
      pauses,
    });
    console.table({ writes: summaryOf(writes.served) });

    expect(writes.failed).to.equal(0);
    await expectOnce(writes, 'acme');
    expect(p50).to.be.at.most(300);
    expect(worst).to.be.at.most(1_000);
  });

  it('a tenant that is moved there and back 100 times has the data that it had', async () => {
    const checksums = async () =>
      withConnection(
        await servers.currentUrl('globex'),
        async client => {
          const found = await readTableChecksums(
            client,
            await listDataTables(client, identityTables),
          );
          return JSON.stringify([...found]);
        },
        { settings: { ...canonicalTextSettings } },
      );

    const before = await checksums();
    expect(before).to.include('audit_log');

    const startedAt = performance.now();
    await moveOften('globex', 2 * rounds, async count => {
      if (count % 2) expect(await checksums(), `round ${count / 2}`).to.equal(before);
    });

    console.log({
      'there and back': rounds,
      seconds: Math.round((performance.now() - startedAt) / 1_000),
    });
  });

  it('a tenant of 500 MB under 50 writes a second moves with a pause below a second, and others hardly notice', async () => {
    const adminUrl = await servers.currentUrl('globex');
    for (const statement of fillLarge) await sql({ adminUrl }, statement);
    const { login, acme, globex } = servers.world;
    const [other, large] = [await login(acme), await login(globex)];

    const to = await servers.otherServer('globex');
    console.log(
      JSON.parse(await servers.runWell(['move', 'globex', '--to', to, '--dry-run', '--json'])),
    );

    const read = (until: Promise<unknown>) =>
      sendSteadily(50, until, async () => {
        const { status } = await other.get(path, { 'Cache-Control': 'no-cache' });
        return status === 200 ? status : `${status}`;
      });

    const move = async (): Promise<MoveSummary> => {
      const startedAt = performance.now();
      const [summary = expect.fail('no move')] = await moveOften('globex', 1);
      const { bytes, rows, pauseMs } = summary;
      console.log({
        MB: bytes / 1e6,
        rows,
        seconds: Math.round((performance.now() - startedAt) / 1_000),
        pauseMs,
      });
      return summary;
    };

    const measured = compareWithCalm({ calmMs, rounds: largeMoves, load: read, work: move });
    const [{ results, failed }, own] = await Promise.all([
      measured,
      writeSteadily(large, 50, measured),
    ]);
    console.table({ writes: summaryOf(own.served) });

    expect(results[0]?.bytes).to.be.above(largeRows * 1_150);
    for (const { pauseMs } of results) expect(pauseMs).to.be.below(1_000);
    expect(results.at(-1)?.rows).to.be.at.least(results[0]?.rows ?? 0);
    expect(own.failed).to.equal(0);
    expect(failed).to.equal(0);
    await expectOnce(own, 'globex');
  });
});

const fillLarge = [
  `insert into activities (created_at, activity_code, user_id, comment, entity_id, screen, ip_address, recorded_by, recorded_from)
   select timestamptz '2025-01-01Z' + i * interval '1 minute', 100 + i % 40, 1 + i % 200,
          'called about order ' || i || ', to be delivered on Monday', 1 + i % 5000, 'Orders', '10.0.0.1', 1, '127.0.0.1'
     from generate_series(1, ${largeRows}) i`,
  `insert into audit_log (created_at, user_id, user_guid, action, resource, record_key, before, after, ip_address, trace_id, database_user)
   select timestamptz '2025-01-01Z' + i * interval '1 minute', 1 + i % 50, md5('user' || i % 50)::uuid, 'update', 'Entity',
          (1 + i % 20000)::text, stored, stored, '10.0.0.1', md5('trace' || i)::uuid, 'service'
     from (select i, jsonb_build_object('id', i, 'name', 'customer ' || md5(i::text), 'status_id', 1, 'country_code', 'GB',
                    'note', repeat(md5(i::text), 6)) as stored
             from generate_series(1, ${largeRows}) i) made`,
  'vacuum analyze',
  'checkpoint', // otherwise it would disturb the calm before the first move
];
