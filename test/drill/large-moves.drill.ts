import { expect } from 'chai';
import { databaseUrl } from '../../src/control/server-urls.ts';
import type { MoveSummary } from '../../src/operator/databases/move-tenant.ts';
import { withConnection } from '../../src/postgres/connection.ts';
import type { Client } from '../support/client.ts';
import { lostOrDoubled, writeSteadily } from '../support/mixed-writes.ts';
import { compareWithCalm } from '../support/others-times.ts';
import { type OwnServer, startOwnServer } from '../support/own-server.ts';
import { runCommand } from '../support/run-command.ts';
import { sendSteadily, summaryOf } from '../support/steady-load.ts';
import { postgresUrl } from '../support/test-server.ts';
import { createWorld, sql, type World } from '../support/world.ts';

/** About 500 MB with the indexes. */
const rows = Number(process.env.ROWS ?? 350_000);
const path = '/api/v1/EntityStatus';
const calmMs = 20_000;
/** There and back. */
const rounds = Number(process.env.ROUNDS ?? 2);

describe('drill: move of a large tenant', () => {
  let world: World;
  let second: OwnServer;
  let acme: Client;
  let globex: Client;

  before(async function () {
    this.timeout(1_800_000);
    [world, second] = await Promise.all([
      createWorld({ ACQUIRE_TIMEOUT_MS: '9000' }),
      startOwnServer('second', ['fsync=off', 'max_connections=60', 'max_wal_size=4GB']),
    ]);
    expect((await run(['server', 'add', 'second'], second.url)).code).to.equal(0);
    [acme, globex] = [await world.login(world.acme), await world.login(world.globex)];
    for (const statement of fill) await sql(world.acme, statement);
  });
  after(async () => {
    await world.close();
    await second.close();
  });

  const run = (args: string[], input = '') => runCommand('scripts/tenant.ts', args, world.environment, input);

  it('a tenant of 500 MB under 50 writes a second moves with a pause below a second, and others hardly notice', async function () {
    this.timeout(1_800_000);
    const plan = JSON.parse((await run(['move', 'acme', '--to', 'second', '--dry-run', '--json'])).stdout);
    console.log(plan);
    const read = (until: Promise<unknown>) =>
      sendSteadily(50, until, async () => {
        const { status } = await globex.get(path, { 'Cache-Control': 'no-cache' });
        return status === 200 ? status : `${status}`;
      });
    const move = async (round: number): Promise<MoveSummary> => {
      const startedAt = performance.now();
      const moved = await run(['move', 'acme', ...(round % 2 ? ['--to', 'second'] : ['--back']), '--json']);
      expect(moved.code, moved.stderr).to.equal(0);
      const summary: MoveSummary = JSON.parse(moved.stdout.trim().split('\n').at(-1) ?? '');
      const { pauseMs, bytes, rows: moves } = summary;
      const seconds = Math.round((performance.now() - startedAt) / 1_000);
      console.log({ MB: (bytes ?? 0) / 1e6, rows: moves, seconds, pauseMs });
      return summary;
    };
    const measured = compareWithCalm({ calmMs, rounds, load: read, work: move });
    const [{ results, failed }, own] = await Promise.all([measured, writeSteadily(acme, 50, measured)]);
    console.table({ writes: summaryOf(own.served) });
    expect(results[0]?.bytes).to.be.above(rows * 1_150);
    for (const { pauseMs } of results) expect(pauseMs).to.be.below(1_000);
    expect(results.at(-1)?.rows).to.be.at.least(results[0]?.rows ?? 0);
    expect(own.failed).to.equal(0);
    expect(failed).to.equal(0);
    const { server, database } = JSON.parse((await run(['show', 'acme', '--json'])).stdout);
    const url = databaseUrl(server === 'second' ? second.url : postgresUrl(), database);
    expect(await withConnection(url, client => lostOrDoubled(own, [client]))).to.deep.equal([]);
  });
});

const fill = [
  `insert into activities (created_at, activity_code, user_id, comment, entity_id, screen, ip_address, recorded_by, recorded_from)
   select timestamptz '2025-01-01Z' + i * interval '1 minute', 100 + i % 40, 1 + i % 200,
          'called about order ' || i || ', to be delivered on Monday', 1 + i % 5000, 'Orders', '10.0.0.1', 1, '127.0.0.1'
     from generate_series(1, ${rows}) i`,
  `insert into audit_log (created_at, user_id, user_guid, action, resource, record_key, before, after, ip_address, trace_id, database_user)
   select timestamptz '2025-01-01Z' + i * interval '1 minute', 1 + i % 50, md5('user' || i % 50)::uuid, 'update', 'Entity',
          (1 + i % 20000)::text, stored, stored, '10.0.0.1', md5('trace' || i)::uuid, 'service'
     from (select i, jsonb_build_object('id', i, 'name', 'customer ' || md5(i::text), 'status_id', 1, 'country_code', 'GB',
                    'note', repeat(md5(i::text), 6)) as stored
             from generate_series(1, ${rows}) i) made`,
  'vacuum analyze',
  'checkpoint', // otherwise it would disturb the calm before the first move
];
