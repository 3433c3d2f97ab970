import { expect } from 'chai';
import type { Client } from '../support/client.ts';
import { eventually } from '../support/eventually.ts';
import { freePort } from '../support/free-port.ts';
import { runCommand } from '../support/run-command.ts';
import { useServiceProcesses } from '../support/service-processes.ts';
import { controlSql, useWorld } from '../support/world.ts';

const list = '/api/v1/EntityStatus';
/** The interval of the batches. */
const batchMs = 10_000;

interface Writer {
  pid: number;
  requests: number;
  countedUntil: number;
  hasEnded: boolean;
}

describe('drill: usage of killed and restarted processes', () => {
  const world = useWorld();
  let clients: { acme: Client; globex: Client };
  const { start } = useServiceProcesses();
  before(async () => {
    clients = { acme: await world.login(world.acme), globex: await world.login(world.globex) };
  });

  const execute = <Row extends object>(text: string): Promise<Row[]> => controlSql<Row>(world, text);

  /** Returns the recorded requests by tenant. */
  async function recorded(): Promise<Record<string, number>> {
    const rows = await execute<{ slug: string; requests: number }>(
      'select slug, sum(requests)::int as requests from tenant_usage join tenants on id = tenant_id group by 1',
    );
    return Object.fromEntries(rows.map(({ slug, requests }) => [slug, requests]));
  }

  /** The processes that write usage, without that of the world. */
  const writers = (): Promise<Writer[]> =>
    execute(
      `select pid, requests::int, extract(epoch from counted_until)::float8 * 1000 as "countedUntil",
              ended_at is not null as "hasEnded"
         from usage_writers where pid <> ${process.pid} order by started_at`,
    );

  /** Sends requests of both tenants until `isOver`. @returns when each response arrived, by tenant */
  async function load(url: string, isOver: () => boolean): Promise<Record<'acme' | 'globex', number[]>> {
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

  async function usageWarnings(): Promise<string> {
    return (await runCommand('scripts/backoffice.ts', ['usage'], world.environment)).stderr;
  }

  it('a killed process loses only requests since its last batch, and usage names it and that time', async () => {
    const running = await start(world.environment);
    const before = await recorded();
    let killedAt = 0;
    const loading = load(running.url, () => killedAt > 0);
    // It ends between two batches, the second of which would have come.
    await eventually(async () => ((await writers())[0]?.requests ?? 0) > 100, 3 * batchMs);
    await eventually(async () => Date.now() - ((await writers())[0]?.countedUntil ?? 0) > batchMs / 2, batchMs);
    running.process.kill('SIGKILL');
    await running.ended;
    killedAt = Date.now();
    const times = await loading;
    const after = await recorded();
    const [writer] = await writers();
    expect(writer?.hasEnded).to.equal(false);
    const countedUntil = writer?.countedUntil ?? 0;
    expect(killedAt - countedUntil).to.be.below(batchMs + 2_000);
    let lost = 0;
    let counted = 0;
    for (const slug of ['acme', 'globex'] as const) {
      const increase = (after[slug] ?? 0) - (before[slug] ?? 0);
      // A response arrives after the process has counted it, or within the same second.
      const certain = times[slug].filter(time => time < countedUntil - 1_000).length;
      const possible = times[slug].filter(time => time < countedUntil + 1_000).length;
      expect(increase, slug).to.be.within(certain, possible);
      counted += increase;
      lost += times[slug].length - increase;
    }
    expect(counted).to.equal(writer?.requests);
    expect(lost).to.be.above(0);
    const warnings = await eventually(async () => (await usageWarnings()) || undefined, 60_000);
    expect(warnings).to.match(new RegExp(`^Warning: Process ${writer?.pid} on .* ended without its last batch`));
    expect(warnings).to.include(`after ${new Date(countedUntil).toISOString()} are missing`);
  });

  it('workers that are restarted and stopped under load count every request', async () => {
    const before = await recorded();
    const known = new Set((await writers()).map(({ pid }) => pid));
    // No Redis is there, so each worker counts requests by itself.
    const settings = { PROCESSES: '2', REDIS_URL: 'redis://127.0.0.1:1' };
    const running = await start({ ...world.environment, PORT: String(await freePort()), ...settings });
    let isOver = false;
    const loading = load(running.url, () => isOver);
    await eventually(async () => (await writers()).filter(({ pid }) => !known.has(pid)).length === 2);
    running.process.kill('SIGHUP');
    await eventually(() => running.output.stdout.includes('"restarted"'), 120_000);
    isOver = true;
    const times = await loading;
    running.process.kill('SIGTERM');
    await running.ended;
    const after = await recorded();
    for (const slug of ['acme', 'globex'] as const)
      expect((after[slug] ?? 0) - (before[slug] ?? 0), slug).to.equal(times[slug].length);
    const workers = (await writers()).filter(({ pid }) => !known.has(pid));
    expect(workers.map(({ hasEnded }) => hasEnded)).to.deep.equal([true, true, true, true]);
  });
});
