import { readFile, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { startWorkers, useWorkers } from '../service/workers/started-workers.ts';
import { eventually } from '../support/eventually.ts';
import { freePort } from '../support/free-port.ts';
import { isAlive } from '../support/processes.ts';
import { startMs } from '../support/starts.ts';
import { useFolder } from '../support/use.ts';
import { useWorld } from '../support/world.ts';

/**
 * Lets a worker throw an error that nothing handles when it gets SIGUSR2, and loop for ever
 * when it gets SIGURG.
 */
const fault =
  "process.once('SIGUSR2',()=>{throw(new(Error)('unhandled'))});process.once('SIGURG',()=>{for(;;);})";

describe('drill: faults of worker processes', () => {
  const world = useWorld();
  const folder = useFolder();
  const keyFile = join(folder, 'master-key');
  const environment = {
    MASTER_KEY: '',
    MASTER_KEY_FILE: keyFile,
    NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(fault)}`,
  };

  before(() => writeFile(keyFile, world.environment.MASTER_KEY ?? '', { mode: 0o600 }));
  const service = useWorkers(world, environment);

  const isServing = async (): Promise<boolean> =>
    (await fetch(`${service.url}/docs`)).status === 200;

  it('a port or management port in use fails the start with the line of a single process', async () => {
    for (const [name, free] of [
      ['PORT', 'MANAGEMENT_PORT'],
      ['MANAGEMENT_PORT', 'PORT'],
    ] as const) {
      const ports = { ...service.ports, [free]: String(await freePort()) };
      const settings = { REDIS_URL: service.redis.url, LOG_LEVEL: 'error' };

      const { ended } = await startWorkers(world, { ...environment, ...ports, ...settings });
      const { code, stderr } = await ended;
      const line = `port ${service.ports[name]} on 127.0.0.1 is in use by another process: set ${name} to another one.\n`;

      expect(code, stderr).to.equal(1);
      expect(stderr).to.equal(line);
    }
  });

  it('a worker with an error that nothing handled is replaced, while the other one serves', async () => {
    const victim = service.workerPids()[0] ?? expect.fail('there is no worker');
    process.kill(victim, 'SIGUSR2');
    await eventually(() => service.countOf('worker_started') === 3, startMs);
    expect(await isServing()).to.equal(true);
    expect(service.lines().find(({ event }) => event === 'fault')?.pid).to.equal(victim);
    expect(service.lines().find(({ event }) => event === 'worker_died')?.worker).to.equal(victim);
  });

  it('a worker in an endless loop is killed and replaced, while health and metrics are answered within 10 s', async () => {
    const victim = service.workerPids().at(-1) ?? expect.fail('there is no worker');
    let slowestMs = 0;
    const observe = async (): Promise<void> => {
      const askedAt = performance.now();
      expect(await service.isReady()).to.equal(true);
      expect((await service.readMetrics()).get('workers_died_total')).to.be.within(1, 2);
      slowestMs = Math.max(slowestMs, performance.now() - askedAt);
    };

    process.kill(victim, 'SIGURG');
    await eventually(async () => {
      await observe();
      return service.countOf('worker_hung') === 1;
    }, startMs);
    await eventually(() => service.countOf('worker_started') === 4, startMs);

    console.log(`health and metrics took ${Math.round(slowestMs)} ms at most`);
    expect(slowestMs).to.be.below(10_000); // the time limit of a scrape
    expect(isAlive(victim)).to.equal(false);
    expect(await isServing()).to.equal(true);
  });

  it('a restart whose new worker cannot start leaves the old ones in service, and a later one succeeds', async () => {
    const key = await readFile(keyFile, 'utf8');
    await writeFile(keyFile, Buffer.alloc(32, 7).toString('base64'));
    service.process.kill('SIGHUP');
    await eventually(() => service.countOf('restart_failed') === 1, startMs);
    expect(service.lines().find(({ event }) => event === 'restart_failed')?.reason).to.match(
      /^MASTER_KEY is not/,
    );
    expect(await isServing()).to.equal(true);
    expect(service.countOf('worker_started')).to.equal(4);

    await writeFile(keyFile, key);
    service.process.kill('SIGHUP');
    service.process.kill('SIGHUP'); // one signal, or a second one that is queued
    await eventually(
      () => service.countOf('restarted') > service.countOf('restart_queued'),
      startMs,
    );
    expect(await isServing()).to.equal(true);
    expect(service.countOf('worker_died')).to.equal(2);
  });

  it('a second SIGTERM ends the service at once, although a request is running', async () => {
    const headers = {
      'Content-Type': 'application/json',
      'Content-Length': 10,
      Expect: '100-continue',
    };

    const sent = request(`${service.url}/api/v1/auth/login`, { method: 'POST', headers });
    sent.on('error', () => {});
    sent.flushHeaders();
    await new Promise(resolve => sent.once('continue', resolve));

    service.process.kill('SIGTERM');
    await eventually(() => service.countOf('stopping') === 1);
    await sleep(1_100); // an earlier signal counts as a repetition of the first one
    service.process.kill('SIGTERM');

    expect((await service.ended).code).to.equal(1);
    await eventually(() => service.workerPids().every(pid => !isAlive(pid)));
  });
});
