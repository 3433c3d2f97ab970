import { expect } from 'chai';
import { ProcessClock } from '../../src/control/process-clock.ts';
import { clockSkewSeconds } from '../../src/control/token-lifetime.ts';
import { startReceiver } from '../sales/webhooks/receiver.ts';
import { eventually } from '../support/eventually.ts';
import { runCommand } from '../support/run-command.ts';
import { useServiceProcesses } from '../support/service-processes.ts';
import { use } from '../support/use.ts';
import { controlSql, createWorld, sql, useLogin } from '../support/world.ts';

/** Puts the clock of a process ahead, before its first line runs. */
const ahead = (seconds: number): string => {
  const code = `const now=Date.now;Date.now=()=>now()+${seconds * 1_000};const D=Date;
    globalThis.Date=class extends D{constructor(...a){super(...(a.length?a:[Date.now()]))}};globalThis.Date.now=()=>now()+${seconds * 1_000};`;
  return `--import data:text/javascript,${encodeURIComponent(code)}`;
};

describe('the clocks of several processes', () => {
  const receiver = use(startReceiver);
  const world = use(() => createWorld({ WEBHOOK_TRUSTED_RECEIVERS: receiver.trusted }));
  const processes = useServiceProcesses();
  const admin = useLogin(world, 'acme');

  async function startAhead(seconds: number) {
    const started = await processes.start({ ...world.environment, NODE_OPTIONS: ahead(seconds) });
    const management = await eventually(
      () => /"managementPort":(\d+)/.exec(started.output.stdout)?.[1],
    );
    return { ...started, health: `http://127.0.0.1:${management}/health/ready` };
  }

  const findings = async (pid = 0): Promise<string[]> => {
    const { stdout } = await runCommand(
      'scripts/tenant.ts',
      ['doctor', '--json'],
      world.environment,
    );
    const all = JSON.parse(stdout).findings as { check: string; problem: string }[];
    return all
      .filter(({ check, problem }) => check === 'clock_differs' && problem.includes(`pid ${pid}`))
      .map(({ problem }) => problem);
  };

  afterEach(() => processes.killAll());

  it('a process whose clock agrees with the control database is ready, and is no finding', async () => {
    expect(await findings(process.pid)).to.deep.equal([]);
  });

  for (const [seconds, isReady, text] of [
    [10, true, /is 5 s or more ahead of that of the control database$/],
    [-10, true, /is 5 s or more behind that of the control database$/],
    [18, false, /is 14 s or more ahead of that of the control database, so it is not ready$/],
    [-18, false, /is 14 s or more behind that of the control database, so it is not ready$/],
    [90, false, /is 14 s or more ahead of that of the control database, so it is not ready$/],
    [-90, false, /is 14 s or more behind that of the control database, so it is not ready$/],
  ] as const) {
    it(`a process whose clock is ${seconds} s ahead logs it, doctor finds it, and it is ${isReady ? '' : 'not '}ready`, async () => {
      const { output, health, process: started } = await startAhead(seconds);

      await eventually(() => output.stdout.includes('"event":"clock_differs"'));
      // A comparison hides as much of the difference as it took: a later one shows more of it.
      await eventually(async () => {
        const ready = await fetch(health);
        expect(ready.status).to.equal(isReady ? 200 : 503);
        if (!isReady) expect(await ready.json()).to.include({ reason: 'clock' });
        return true;
      });
      await eventually(async () => {
        const found = await findings(started.pid);
        expect(found).to.have.length(1);
        expect(found[0]).to.match(text);
        return true;
      });
    });
  }

  it('two clocks of processes that are ready differ by less than the time for which tokens are accepted', () => {
    const roundTripMs = 1_000;
    /** The database tells its time where that hides most: at the end, or at the beginning. */
    const isReady = (aheadMs: number): boolean => {
      const answeredMs = aheadMs > 0 ? aheadMs : aheadMs + roundTripMs;
      const clock = new ProcessClock(() => answeredMs);
      clock.compare(0, roundTripMs);
      return !clock.isWrong;
    };

    const farthestMs = (clockSkewSeconds * 1_000) / 2;

    for (const direction of [1, -1]) {
      expect(isReady(direction * 12_000)).to.equal(true);
      expect(isReady(direction * farthestMs)).to.equal(false);
    }
  });

  it('the times of a webhook are those of the database, also by a process ahead', async () => {
    const { url } = await startAhead(10);
    const webhook = { Url: receiver.url('/ahead'), Resources: ['Country'] };
    const client = admin.at(url);
    const { body } = await client.post('/api/v1/Webhooks', webhook);

    const sent = await client.post(`/api/v1/Webhooks/${body.Id}/test`);

    expect(sent.status).to.equal(202);
    const [database] = await controlSql<{ ms: number }>(
      world,
      'select (extract(epoch from clock_timestamp()) * 1000)::float8 as ms',
    );
    const message = await eventually(() => receiver.at('/ahead')[0]);
    // A comparison of the clocks may hide the round trip of a beat.
    expect(Date.parse(message.body.timestamp)).to.be.below(Number(database?.ms) + 1_000);
  });

  it('the times of a record come from its database, also that of its deletion by a process ahead', async () => {
    const { url } = await startAhead(10);
    const { body } = await admin.post('/api/v1/Currency', { Code: 'CLK', Name: 'Clock' });
    const headers = { Authorization: `Bearer ${admin.tokens?.accessToken}` };

    const deleted = await fetch(`${url}/api/v1/Currency/${body.Id}`, { method: 'DELETE', headers });

    expect(deleted.status).to.equal(204);
    const [row] = await sql<{ late: boolean }>(
      world.acme,
      `select deleted_at > clock_timestamp() or deleted_at < created_at as late from currencies where code = 'CLK'`,
    );
    expect(row?.late).to.equal(false);
  });
});
