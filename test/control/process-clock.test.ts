import { expect } from 'chai';
import { eventually } from '../support/eventually.ts';
import { runCommand } from '../support/run-command.ts';
import { useServiceProcesses } from '../support/service-processes.ts';
import { sql, useLogin, useWorld } from '../support/world.ts';

/** Puts the clock of a process ahead, before its first line runs. */
const ahead = (seconds: number): string => {
  const code = `const now=Date.now;Date.now=()=>now()+${seconds * 1_000};const D=Date;
    globalThis.Date=class extends D{constructor(...a){super(...(a.length?a:[Date.now()]))}};globalThis.Date.now=()=>now()+${seconds * 1_000};`;
  return `--import data:text/javascript,${encodeURIComponent(code)}`;
};

describe('the clocks of several processes', () => {
  const world = useWorld();
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

  it('a process that agrees with the control database is no finding, and is ready', async () => {
    expect(await findings(process.pid)).to.deep.equal([]);
  });

  for (const [seconds, isReady, text] of [
    [10, true, /is 5 s or more ahead of that of the control database$/],
    [-10, true, /is 5 s or more behind that of the control database$/],
    [90, false, /is 25 s or more ahead of that of the control database, so it is not ready$/],
    [-90, false, /is 25 s or more behind that of the control database, so it is not ready$/],
  ] as const) {
    it(`a process whose clock is ${seconds} s ahead logs it, doctor finds it, and it is ${isReady ? '' : 'not '}ready`, async () => {
      const { output, health, process: started } = await startAhead(seconds);

      await eventually(() => output.stdout.includes('"event":"clock_differs"'));
      const ready = await fetch(health);
      expect(ready.status).to.equal(isReady ? 200 : 503);
      if (!isReady) expect(await ready.json()).to.include({ reason: 'clock' });
      const [problem] = await eventually(async () => {
        const found = await findings(started.pid);
        return found.length > 0 && found;
      });
      expect(problem).to.match(text);
    });
  }

  it('the times of a record come from its database, also that of its deletion by a process ahead', async () => {
    const { url } = await startAhead(20);
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
