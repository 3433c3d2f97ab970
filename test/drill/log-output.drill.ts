import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { type RunningScript, startScript } from '../support/command-line.ts';
import { eventually } from '../support/eventually.ts';
import { freePort } from '../support/free-port.ts';
import { useWorld } from '../support/world.ts';

describe('drill: a log that cannot be written', () => {
  const world = useWorld();
  let ports: { PORT: string; MANAGEMENT_PORT: string };
  let service: RunningScript;

  beforeEach(async () => {
    ports = { PORT: String(await freePort()), MANAGEMENT_PORT: String(await freePort()) };
  });
  afterEach(async () => {
    service.process.kill('SIGKILL');
    await service.ended;
  });

  const get = (path: string) => fetch(`http://127.0.0.1:${ports.PORT}${path}`);
  const isReady = () =>
    fetch(`http://127.0.0.1:${ports.MANAGEMENT_PORT}/health/ready`).then(({ ok }) => ok);

  async function droppedLines(): Promise<number> {
    const response = await fetch(`http://127.0.0.1:${ports.MANAGEMENT_PORT}/metrics`);
    return Number(/^log_lines_dropped_total (\d+)$/m.exec(await response.text())?.[1]);
  }

  /**
   * Sends requests, 20 at a time, until the service has dropped log lines.
   * @returns the longest time of a request
   */
  async function fillLog(): Promise<number> {
    let maxMs = 0;
    const request = async () => {
      const startedAt = performance.now();
      expect((await get('/docs/errors')).status).to.equal(200);
      maxMs = Math.max(maxMs, performance.now() - startedAt);
    };
    while ((await droppedLines()) === 0) {
      for (let i = 0; i < 25; i++) await Promise.all(Array.from({ length: 20 }, request));
    }
    return maxMs;
  }

  it('a service with a full device as standard output serves, counts dropped lines and exits with 0', async () => {
    const environment = { ...world.environment, ...ports, SHUTDOWN_DELAY: '0s' };
    service = startScript('src/main.ts', [], environment, '>/dev/full');
    await eventually(isReady, 60_000);
    console.log({ maxMs: await fillLog(), dropped: await droppedLines() });
    service.process.kill('SIGTERM');
    const { code, signal, stderr } = await service.ended;
    expect({ code, signal, stderr }).to.deep.equal({ code: 0, signal: null, stderr: '' });
  });

  it('with a full standard output, an uncaught error still drains the service, which exits with 1', async () => {
    const fault =
      'process.on("SIGUSR2", () => { throw Object.defineProperty(new Error(), "stack", { get() { throw 1; } }); });';
    const environment = { ...world.environment, ...ports };

    service = startScript(
      '--import',
      [`data:text/javascript,${fault}`, 'src/main.ts'],
      environment,
      '>/dev/full',
    );
    await eventually(isReady, 60_000);

    service.process.kill('SIGUSR2');
    const { code, signal, stderr } = await service.ended;
    expect({ code, signal, stderr }).to.deep.equal({ code: 1, signal: null, stderr: '' });
  });

  it('a service with a stopped log reader serves, and later logs how many lines it dropped', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'backoffice-log-'));
    const [fifo, file] = [join(folder, 'fifo'), join(folder, 'log')];
    execFileSync('sh', ['-c', 'mkfifo "$0"', fifo]);
    const reader = spawn('sh', ['-c', 'exec cat "$0" >"$1"', fifo, file]);
    const readerClosed = once(reader, 'close');

    const environment = { ...world.environment, ...ports, SHUTDOWN_DELAY: '0s' };
    service = startScript('src/main.ts', [], environment, `>${fifo}`);
    await eventually(isReady, 60_000);

    reader.kill('SIGSTOP');
    const maxMs = await fillLog();
    console.log({ maxMs, dropped: await droppedLines() });
    expect(maxMs).to.be.below(1_000);

    reader.kill('SIGCONT');
    await eventually(
      async () => (await readFile(file, 'utf8')).includes('log_lines_dropped'),
      10_000,
    );

    service.process.kill('SIGTERM');
    expect((await service.ended).code).to.equal(0);
    await readerClosed;

    const lines = (await readFile(file, 'utf8')).trimEnd().split('\n');
    await rm(folder, { recursive: true });
    for (const line of lines) JSON.parse(line); // no line is cut
    expect(lines.at(-1)).to.include('"event":"stopping"');
  });
});
