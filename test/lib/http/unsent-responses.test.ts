import { createServer, type Server, type ServerResponse } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { expect } from 'chai';
import { UnsentResponses } from '../../../src/lib/http/response/unsent-responses.ts';
import { eventually } from '../../support/eventually.ts';
import { rawRequest } from '../../support/raw-http.ts';

const mebibyte = 1024 * 1024;
/** A body that is larger than the socket buffers of both sides. */
const bodyBytes = 16 * mebibyte;

describe('unsent responses', () => {
  const sharedBody = Buffer.alloc(bodyBytes, 'x');
  const clients: Socket[] = [];
  let unsent: UnsentResponses;
  let served: number;
  let taken: number;
  let mostBytes: number;
  let server: Server;

  beforeEach(async () => {
    unsent = new UnsentResponses({ bytes: 100 * mebibyte, bytesOfOwner: 80 * mebibyte });
    served = 0;
    taken = 0;
    mostBytes = 0;
    server = createServer((request, response) => {
      if (request.url?.startsWith('/pieces')) {
        void sendPieces(response, request.url);
        return;
      }
      const body = request.url === '/shared' ? sharedBody : Buffer.alloc(bodyBytes, 'x');
      response.end(body);
      unsent.add(response, request.socket, body, String(request.url));
      served++;
    });
    await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  });
  afterEach(() => {
    for (const client of clients.splice(0)) client.destroy();
    server.closeAllConnections();
    server.close();
  });

  /** Sends a stream of 40 pieces, each when the one before was taken. */
  async function sendPieces(response: ServerResponse, tenant: string): Promise<void> {
    served++;
    for (let i = 0; i < 40 && !response.destroyed; i++) {
      const sent = unsent.send(response, 'x'.repeat(mebibyte), tenant);
      mostBytes = Math.max(mostBytes, unsent.bytes);
      await sent;
      taken++;
    }
    response.end();
  }

  /** Requests the path of a tenant several times in a pipeline, and reads nothing. */
  function neverReads(tenant: string, requests: number): { socket: Socket; reset: () => boolean } {
    const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
    let isReset = false;
    socket.pause().on('error', () => (isReset = true));
    socket.write(rawRequest(`GET ${tenant}`).repeat(requests));
    clients.push(socket);
    return { socket, reset: () => isReset };
  }

  it('above the limit of unsent bytes, connections of the tenant with the most are reset, and no other', async () => {
    const other = neverReads('/other', 1);
    await eventually(() => served === 1);

    const many = Array.from({ length: 6 }, () => neverReads('/many', 3));
    await eventually(() => served === 19);
    expect(unsent.bytes).to.be.within(bodyBytes, 100 * mebibyte);
    expect(unsent.cut).to.be.above(3);

    for (const { socket } of many) socket.resume();
    await eventually(() => many.filter(({ reset }) => reset()).length === unsent.cut);
    expect(other.reset()).to.equal(false);

    let received = 0;
    other.socket.on('data', (chunk: Buffer) => (received += chunk.length)).resume();
    await eventually(() => received > bodyBytes);
  });

  it('received responses and closed connections leave no unsent bytes, also those that wait in a pipeline', async () => {
    const [reader, closer] = [neverReads('/reader', 2), neverReads('/closer', 3)];
    await eventually(() => served === 5);
    expect(unsent.bytes).to.be.within(5 * bodyBytes, 5 * bodyBytes + mebibyte);
    closer.socket.destroy();
    await eventually(() => unsent.bytes < 3 * bodyBytes);
    reader.socket.resume();
    await eventually(() => unsent.bytes === 0);
    expect(unsent.cut).to.equal(0);
  });

  it('a body that many unsent responses share counts once', async () => {
    for (let i = 0; i < 10; i++) neverReads('/shared', 2);
    await eventually(() => served === 20);
    expect(unsent.bytes).to.be.within(bodyBytes, bodyBytes + mebibyte);
    expect(unsent.cut).to.equal(0);
    for (const socket of clients) socket.destroy();
    await eventually(() => unsent.bytes === 0);
  });

  it('above its own limit, a tenant loses a connection although all tenants are below theirs', async () => {
    const many = Array.from({ length: 6 }, () => neverReads('/many', 1));
    await eventually(() => served === 6);

    expect(unsent.bytes).to.be.within(4 * bodyBytes, 80 * mebibyte);
    expect(unsent.cut).to.be.above(0);
    for (const { socket } of many) socket.resume();
    await eventually(() => many.filter(({ reset }) => reset()).length === unsent.cut);
  });

  it('a stream that nobody reads holds one piece, which counts, and goes on when it is read', async () => {
    const { socket } = neverReads('/pieces', 1);
    await eventually(() => unsent.bytes === mebibyte);

    socket.resume();

    await eventually(() => taken === 40);
    expect(mostBytes).to.equal(mebibyte);
    expect(unsent.bytes).to.equal(0);
    expect(unsent.cut).to.equal(0);
  });

  it('streams that nobody reads count against their tenant, and their closed connections leave no unsent bytes', async () => {
    const streams = Array.from({ length: 100 }, () => neverReads('/pieces', 1));
    await eventually(() => unsent.cut > 0);
    expect(mostBytes).to.be.at.most(80 * mebibyte);

    for (const { socket } of streams) socket.destroy();

    await eventually(() => unsent.bytes === 0);
  });
});
