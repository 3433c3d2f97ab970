import { once } from 'node:events';
import { readdir, readFile } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { expect } from 'chai';
import { eventually } from '../support/eventually.ts';
import { rawRequest } from '../support/raw-http.ts';
import { type ServiceProcess, useServiceProcesses } from '../support/service-processes.ts';
import { useWorld } from '../support/world.ts';

const bundle = '/swagger/swagger-ui-bundle.js'; // 1.4 MB, without a login

describe('drill: clients that read slowly or never', () => {
  const world = useWorld();
  const processes = useServiceProcesses();
  let service: ServiceProcess;

  before(async () => {
    service = await processes.start(world.environment);
  });

  /** Connects, requests the bundle five times in a pipeline, and reads nothing. */
  function neverReads(): Socket {
    const socket = connect(service.port, '127.0.0.1');
    socket.pause();
    socket.on('error', () => {});
    socket.write(rawRequest(`GET ${bundle}`).repeat(5));
    return socket;
  }

  async function descriptors(): Promise<number> {
    return (await readdir(`/proc/${service.process.pid}/fd`)).length;
  }

  /**
   * True while the service has an established connection to this port of a client, by the
   * kernel's table.
   */
  async function isOpen(clientPort: number): Promise<boolean> {
    const hex = (value: number) => `:${value.toString(16).toUpperCase().padStart(4, '0')}`;
    const established = '01';
    return (await readFile('/proc/net/tcp', 'utf8'))
      .split('\n')
      .map(line => line.trim().split(/\s+/))
      .some(
        ([, local, remote, state]) =>
          local?.endsWith(hex(service.port)) &&
          remote?.endsWith(hex(clientPort)) &&
          state === established,
      );
  }

  async function p95(requests: number): Promise<number> {
    const times: number[] = [];
    for (let i = 0; i < requests; i++) {
      const startedAt = performance.now();
      await (await fetch(`${service.url}/docs`)).arrayBuffer();
      times.push(performance.now() - startedAt);
    }
    return times.sort((a, b) => a - b)[Math.floor(requests * 0.95)] ?? 0;
  }

  it('90 connections that never read are closed within 25 s, and their descriptors come back', async () => {
    await p95(20);
    const calm = { p95: await p95(100), descriptors: await descriptors() };

    const startedAt = performance.now();
    const clients = Array.from({ length: 90 }, neverReads);
    await eventually(async () => (await descriptors()) >= calm.descriptors + 90);
    const meanwhile = await p95(100);
    await eventually(async () => (await descriptors()) <= calm.descriptors + 2, 60_000);
    const closedAfterMs = performance.now() - startedAt;

    for (const client of clients) client.destroy();
    console.log({ calmP95: calm.p95, p95: meanwhile, closedAfterMs });
    expect(closedAfterMs).to.be.below(25_000);
  });

  it('a connection that reads a few bytes each second is closed within 65 s', async () => {
    const socket = connect(service.port, '127.0.0.1');
    socket.on('error', () => {});
    await once(socket, 'connect');
    const clientPort = socket.localPort ?? 0;

    socket.pause();
    const startedAt = performance.now();
    socket.write(rawRequest(`GET ${bundle}`).repeat(5));
    const reader = setInterval(() => socket.read(Math.min(20_000, socket.readableLength)), 1_000);

    // The client learns of the close only when it has read what its kernel has buffered, so
    // the server is asked.
    expect(await isOpen(clientPort)).to.equal(true);
    await eventually(async () => !(await isOpen(clientPort)), 90_000);
    const ms = performance.now() - startedAt;

    clearInterval(reader);
    socket.destroy();

    console.log({ closedAfterMs: ms });
    expect(ms).to.be.below(65_000);
  });
});
