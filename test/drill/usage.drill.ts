import { expect } from 'chai';
import type { Client } from '../support/client.ts';
import { eventually } from '../support/eventually.ts';
import { freePort } from '../support/free-port.ts';
import { useServiceProcesses } from '../support/service-processes.ts';
import { controlSql, useWorld } from '../support/world.ts';

const list = '/api/v1/EntityStatus';
/** The interval at which a process writes its counts, in ms. */
const intervalMs = 60_000;

describe('drill: usage of killed and restarted processes', () => {
  const world = useWorld();
  let clients: { acme: Client; globex: Client };
  const { start } = useServiceProcesses();
  before(async () => {
    clients = { acme: await world.login(world.acme), globex: await world.login(world.globex) };
  });

  const execute = <Row extends object>(text: string): Promise<Row[]> =>
    controlSql<Row>(world, text);

  /** Returns the recorded requests by tenant. */
  async function recorded(): Promise<Record<string, number>> {
    const rows = await execute<{ slug: string; requests: number }>(
      'select slug, sum(requests)::int as requests from tenant_usage join tenants on id = tenant_id group by 1',
    );
    return Object.fromEntries(rows.map(({ slug, requests }) => [slug, requests]));
  }

  /**
   * Sends requests of both tenants until `isOver`.
   * @returns when each response arrived, by tenant
   */
  async function load(
    url: string,
    isOver: () => boolean,
  ): Promise<Record<'acme' | 'globex', number[]>> {
    const times = { acme: [] as number[], globex: [] as number[] };
    const send = async (slug: 'acme' | 'globex'): Promise<void> => {
      const client = clients[slug].at(url);
      while (!isOver()) {
        const isSent = await client.get(list).then(
          ({ status }) => status === 200,
          () => false,
        );
        if (isSent) times[slug].push(Date.now());
      }
    };
    await Promise.all([send('acme'), send('acme'), send('globex')]);
    return times;
  }

  it('a killed process loses the requests of its last minute at most, and counts none twice', async () => {
    const running = await start(world.environment);
    const before = await recorded();
    let killedAt = 0;
    const loading = load(running.url, () => killedAt > 0);
    const hasWritten = async () => ((await recorded()).acme ?? 0) > (before.acme ?? 0);
    await eventually(hasWritten, 2 * intervalMs);

    running.process.kill('SIGKILL');
    await running.ended;
    killedAt = Date.now();
    const times = await loading;

    const after = await recorded();
    for (const slug of ['acme', 'globex'] as const) {
      const increase = (after[slug] ?? 0) - (before[slug] ?? 0);
      const older = times[slug].filter(time => time < killedAt - intervalMs - 1_000).length;
      expect(increase, slug).to.be.within(older, times[slug].length);
    }
  });

  it('workers that are restarted and stopped under load count every request', async () => {
    const before = await recorded();
    // No Redis is there, so each worker counts requests by itself.
    const settings = { PROCESSES: '2', REDIS_URL: 'redis://127.0.0.1:1' };
    const running = await start({
      ...world.environment,
      PORT: String(await freePort()),
      ...settings,
    });
    let isOver = false;
    const loading = load(running.url, () => isOver);
    running.process.kill('SIGHUP');
    await eventually(() => running.output.stdout.includes('"restarted"'), 120_000);
    isOver = true;
    const times = await loading;

    running.process.kill('SIGTERM');
    await running.ended;

    const after = await recorded();
    for (const slug of ['acme', 'globex'] as const) {
      expect((after[slug] ?? 0) - (before[slug] ?? 0), slug).to.equal(times[slug].length);
    }
  });
});
