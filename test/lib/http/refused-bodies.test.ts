import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { rawRequest } from '../../support/raw-http.ts';
import { useWorld } from '../../support/world.ts';

const mebibyte = 1024 * 1024;

describe('bodies that are refused while they arrive', () => {
  const world = useWorld();

  async function headOf(path: string, bytes: number): Promise<string> {
    const { tokens } = await world.login(world.acme);
    const headers = [
      `Authorization: Bearer ${tokens?.accessToken}`,
      'Content-Type: application/json',
      `Content-Length: ${bytes}`,
    ];

    return rawRequest(`POST ${path}`, headers);
  }

  /**
   * Connects a client that receives nothing before it has sent everything, as simple programs
   * do.
   */
  async function connectWriter(): Promise<Socket> {
    const { hostname, port } = new URL(world.url);
    const socket = connect(Number(port), hostname).on('error', () => {});
    socket.pause();
    return socket;
  }

  async function receive(socket: Socket): Promise<string> {
    let text = '';
    for await (const piece of socket.setEncoding('latin1')) text += piece;
    return text;
  }

  it('a client that first sends all of a body that is too large, and then receives, gets the refusal', async () => {
    const socket = await connectWriter();
    socket.write(await headOf('/api/v1/Currency', 8 * mebibyte));
    for (let sent = 0; sent < 8; sent += 0.5) {
      socket.write(Buffer.alloc(mebibyte / 2, ' '));
      await sleep(20); // the client is slower than the refusal
    }

    expect(await receive(socket)).to.match(
      /^HTTP\/1\.1 413 [\s\S]*"code":"payload_too_large"[\s\S]*\}$/,
    );
  });

  it('a request behind a refused body is not begun, and makes nothing', async () => {
    const socket = await connectWriter();
    socket.write(await headOf('/api/v1/Currency', 2 * mebibyte));
    await sleep(100);
    const body = JSON.stringify({ Code: 'ABC', Name: 'Behind' });
    socket.write(Buffer.alloc(2 * mebibyte, ' '));
    socket.write((await headOf('/api/v1/Currency', body.length)) + body);

    const text = await receive(socket);
    expect(text.match(/HTTP\/1\.1 \d+/g)).to.deep.equal(['HTTP/1.1 413']);
    const admin = await world.login(world.acme);
    expect((await admin.get('/api/v1/Currency/code/ABC')).status).to.equal(404);
  });

  it('a client that goes on to send after its refusal is cut off after three seconds', async () => {
    const socket = await connectWriter();
    const startedAt = performance.now();
    socket.write(await headOf('/api/v1/Currency', 1_000 * mebibyte));
    while (!socket.destroyed && performance.now() - startedAt < 20_000) {
      socket.write(' ');
      await sleep(50);
    }

    expect(performance.now() - startedAt).to.be.within(2_500, 15_000);
  });
});
