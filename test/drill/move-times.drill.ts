import { expect } from 'chai';
import { databaseUrl } from '../../src/control/server-urls.ts';
import type { MoveSummary } from '../../src/operator/databases/move-tenant.ts';
import {
  canonicalTextSettings,
  identityTables,
  listDataTables,
  readTableChecksums,
} from '../../src/operator/schema/tenant-tables.ts';
import { withConnection } from '../../src/postgres/connection.ts';
import { largeTenantSql } from '../support/large-tenant.ts';
import { lostOrDoubled, writeSteadily } from '../support/mixed-writes.ts';
import { type OwnServer, startOwnServer } from '../support/own-server.ts';
import { runCommand } from '../support/run-command.ts';
import { summaryOf } from '../support/steady-load.ts';
import { postgresUrl } from '../support/test-server.ts';
import { createWorld, sql, type World } from '../support/world.ts';

/** About 10 MB of rows and indexes, beside the 9 MB that every database has. */
const rows = Number(process.env.ROWS ?? 3_800);
const moves = Number(process.env.MOVES ?? 20);
const rounds = Number(process.env.ROUNDS ?? 100);

describe('drill: times of moves', () => {
  let world: World;
  let second: OwnServer;

  before(async function () {
    this.timeout(120_000);
    [world, second] = await Promise.all([
      createWorld({ ACQUIRE_TIMEOUT_MS: '9000' }),
      startOwnServer('second', ['fsync=off', 'max_connections=60']),
    ]);
    expect((await run(['server', 'add', 'second'], second.url)).code).to.equal(0);
  });
  after(async () => {
    await world.close();
    await second.close();
  });

  const run = (args: string[], input = '') => runCommand('scripts/tenant.ts', args, world.environment, input);

  async function move(slug: string, to: string): Promise<MoveSummary> {
    const { code, stdout, stderr } = await run(['move', slug, '--to', to, '--json']);
    expect(code, stderr).to.equal(0);
    return JSON.parse(stdout.trim().split('\n').at(-1) ?? '');
  }

  /** Runs `work` on the database that a tenant has now. */
  async function onDatabase<T>(slug: string, work: Parameters<typeof withConnection<T>>[1]): Promise<T> {
    const { server, database } = JSON.parse((await run(['show', slug, '--json'])).stdout);
    const url = databaseUrl(server === 'second' ? second.url : postgresUrl(), database);
    return withConnection(url, work, { settings: { ...canonicalTextSettings } });
  }

  it('a tenant of 10 MB under 50 writes a second waits for at most 300 ms in most moves and 1 s in each, and loses no write', async function () {
    this.timeout(moves * 60_000);
    for (const statement of largeTenantSql(rows)) await sql(world.acme, statement);
    const acme = await world.login(world.acme);
    const moving = (async () => {
      const all: MoveSummary[] = [];
      for (let count = 0; count < moves; count++) all.push(await move('acme', count % 2 ? 'default' : 'second'));
      return all;
    })();
    const writes = await writeSteadily(acme, 50, moving);
    const done = await moving;
    const pauses = done.map(({ pauseMs }) => pauseMs ?? 0).sort((a, b) => a - b);
    const [p50 = 0, worst = 0] = [pauses[pauses.length >> 1], pauses.at(-1)];
    console.log({ MB: (done[0]?.bytes ?? 0) / 1e6, moves, pauseP50: p50, worstPause: worst, pauses });
    console.table({ writes: summaryOf(writes.served) });
    expect(writes.failed).to.equal(0);
    expect(await onDatabase('acme', client => lostOrDoubled(writes, [client]))).to.deep.equal([]);
    expect(p50).to.be.at.most(300);
    expect(worst).to.be.at.most(1_000);
  });

  it('a tenant that is moved there and back 100 times has the data that it had', async function () {
    this.timeout(rounds * 60_000);
    const checksums = () =>
      onDatabase('globex', async client => {
        const found = await readTableChecksums(client, await listDataTables(client, identityTables));
        return JSON.stringify([...found]);
      });
    const before = await checksums();
    expect(before).to.include('audit_log');
    const startedAt = performance.now();
    for (let count = 0; count < 2 * rounds; count++) {
      await move('globex', count % 2 ? 'default' : 'second');
      if (count % 2) expect(await checksums(), `round ${count / 2}`).to.equal(before);
    }
    const seconds = Math.round((performance.now() - startedAt) / 1_000);
    console.log({ 'there and back': rounds, seconds });
  });
});
