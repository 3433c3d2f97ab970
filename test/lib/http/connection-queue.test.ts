import type { ChildProcess } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { expect } from 'chai';
import { useWorkers } from '../../service/workers/started-workers.ts';
import { eventually } from '../../support/eventually.ts';
import { freePort } from '../../support/free-port.ts';
import { useServiceProcesses } from '../../support/service-processes.ts';
import { useWorld } from '../../support/world.ts';

interface Burst {
  /** Connections that are open for their client, and those that the service has ended. */
  readonly counts: { open: number; ended: number };
  readonly sockets: readonly Socket[];
}

describe('the queue of new connections', () => {
  const world = useWorld();
  const processes = useServiceProcesses();
  const workers = useWorkers(world, {});
  const opened: Socket[] = [];
  /** The connections of a burst: as many as the kernel lets a queue have, at most 2,000. */
  let size: number;

  before(async () => {
    const somaxconn = await readFile('/proc/sys/net/core/somaxconn', 'utf8').catch(() => '128');
    size = Math.min(2_000, Number(somaxconn));
  });
  afterEach(() => {
    for (const socket of opened.splice(0)) socket.destroy();
  });

  function openBurst(port: number): Burst {
    const counts = { open: 0, ended: 0 };
    const sockets = Array.from({ length: size }, () => {
      const socket = connect(port, '127.0.0.1');
      socket.on('connect', () => counts.open++).on('close', () => counts.ended++);
      return socket.on('error', () => {}).resume();
    });
    opened.push(...sockets);
    return { counts, sockets };
  }

  /**
   * Stops a process, so that it accepts nothing, and opens a burst of connections to each of
   * its ports. The queues must take all of them: the kernel drops what it has no room for, and
   * such a client tries again after a second, or believes for ever that it is connected.
   */
  async function queueBursts(child: ChildProcess, ports: readonly number[]): Promise<Burst[]> {
    child.kill('SIGSTOP');
    try {
      const bursts = ports.map(openBurst);
      await eventually(() => bursts.every(({ counts }) => counts.open === size)).catch(() => {});
      expect(bursts.map(({ counts }) => counts.open)).to.deep.equal(ports.map(() => size));
      return bursts;
    } finally {
      child.kill('SIGCONT');
    }
  }

  /** Checks that the service ends each connection of a burst, and answers requests behind it. */
  async function expectNoneHangs([api, management]: Burst[], url: string): Promise<void> {
    for (const tenant of [world.acme, world.globex]) {
      const client = await world.login(tenant);
      expect((await client.at(url).get('/api/v1/auth/me')).status).to.equal(200);
    }

    // The clients of the API send nothing: the service ends each one that has arrived.
    await eventually(() => api?.counts.ended === size);

    for (const socket of management?.sockets ?? []) {
      socket.write('GET /health/live HTTP/1.0\r\n\r\n');
    }
    await eventually(() => management?.counts.ended === size);
  }

  it('a burst of 2,000 connections waits on each port of a process that accepts none at the moment, and leaves none hanging', async () => {
    const MANAGEMENT_PORT = String(await freePort());
    const service = await processes.start({ ...world.environment, MANAGEMENT_PORT });

    const bursts = await queueBursts(service.process, [service.port, Number(MANAGEMENT_PORT)]);

    await expectNoneHangs(bursts, service.url);
  });

  it('a burst of 2,000 connections waits on each port of a service with worker processes, and leaves none hanging', async () => {
    const { PORT, MANAGEMENT_PORT } = workers.ports;

    const bursts = await queueBursts(workers.process, [Number(PORT), Number(MANAGEMENT_PORT)]);

    await expectNoneHangs(bursts, workers.url);
  });
});
