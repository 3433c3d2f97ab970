import type { AddressInfo } from 'node:net';
import { connect } from 'node:net';
import { expect } from 'chai';
import { type ApiServer, createApiServer } from '../../../src/lib/http/server/api-server.ts';
import { eventually } from '../../support/eventually.ts';
import { rawRequest, sendRaw } from '../../support/raw-http.ts';

/** A body that is larger than the socket buffers of both sides. */
const large = Buffer.alloc(11 * 1024 * 1024, 'x');

/** A stop that succeeds ends when its requests do, long before. */
const maxDrainMs = 60_000;

describe('HTTP server of the API', () => {
  let api: ApiServer;
  let url: string;

  beforeEach(() => listen());
  afterEach(() => api.http.close().closeAllConnections());

  async function listen(limits?: Parameters<typeof createApiServer>[0]['limits']): Promise<void> {
    api = createApiServer({
      keepAliveMs: 75_000,
      refuse: (_error, socket) => socket.destroy(),
      ...(limits ? { limits } : {}),
      handle: (request, response) => {
        const respond = () => response.end(request.url === '/large' ? large : 'small');
        if (request.url === '/slow') return setTimeout(() => response.end('slow'), 500);
        if (request.method === 'POST') request.resume().on('end', respond);
        else respond();
      },
    });
    await new Promise<void>(resolve => api.http.listen(0, '127.0.0.1', resolve));
    url = `http://127.0.0.1:${(api.http.address() as AddressInfo).port}`;
  }

  it('a stop waits until a slow client has received the whole response', async () => {
    const socket = connect(Number(new URL(url).port), '127.0.0.1');
    socket.write(rawRequest('GET /large'));
    // the response has begun; the client reads no more
    await new Promise(resolve => socket.once('readable', resolve));

    const drained = api.drain(maxDrainMs);
    let received = 0;
    socket.on('data', (chunk: Buffer) => (received += chunk.length)).resume();
    await new Promise(resolve => socket.once('close', resolve));

    expect(received).to.be.above(large.length);
    expect(await drained).to.equal(true);
  });

  it('a stop closes idle connections, used or new, and finishes a request whose body still arrives', async () => {
    let requests = 0;
    api.http.on('request', () => requests++);

    const unused = sendRaw(url, []);
    const used = sendRaw(url, rawRequest('GET /'));
    let finishBody = (_: string): void => {};
    const post = sendRaw(url, rawRequest('POST /', ['Content-Length: 4']), {
      until: /small/,
      exposeWrite: write => (finishBody = write),
    });

    await eventually(
      () =>
        new Promise<boolean>(resolve =>
          api.http.getConnections((_, n) => resolve(n === 3 && requests === 2)),
        ),
    );

    const drained = api.drain(maxDrainMs);
    expect((await unused).closed).to.equal(true);
    expect((await used).closed).to.equal(true);

    finishBody('body');
    expect((await post).statuses).to.deep.equal([200]);
    expect(await drained).to.equal(true);
  });

  for (const path of ['/small', '/large']) {
    it(`a stop finishes a request that was sent in a pipeline after GET ${path}`, async () => {
      const exchange = sendRaw(url, [rawRequest(`GET ${path}`) + rawRequest('GET /slow')]);
      await new Promise(resolve => api.http.once('request', resolve));
      expect(await api.drain(maxDrainMs)).to.equal(true);
      const { statuses, text } = await exchange;
      expect(statuses).to.deep.equal([200, 200]);
      expect(text).to.match(/slow$/);
    });
  }

  it('of a pipeline only the last response closes the connection when the server stops', async () => {
    const exchange = sendRaw(url, [rawRequest('GET /slow').repeat(3)]);
    await new Promise(resolve => api.http.once('request', resolve));
    api.closeAfterResponses();
    const { text } = await exchange;
    expect([...text.matchAll(/Connection: (\S+)/g)].map(([, value]) => value)).to.deep.equal([
      'keep-alive',
      'keep-alive',
      'close',
    ]);
  });

  const endless = [
    ['the head of a request', 'GET / HTTP/1.1\r\nHost: x\r\nA: ', 'a'],
    ['empty lines after a response', rawRequest('GET /'), '\r\n'],
    ['the body of a request', rawRequest('POST /', ['Content-Length: 100000']), 'a'],
  ] as const;
  for (const [what, start, drip] of endless) {
    it(`a stop ends a client that sends ${what} without an end within the time limit of requests`, async () => {
      api.http.close();
      await listen({
        headersTimeout: 1_000,
        requestTimeout: 1_500,
        connectionsCheckingInterval: 50,
      });

      const socket = connect(Number(new URL(url).port), '127.0.0.1').on('error', () => {});
      socket.write(start);
      const dripping = setInterval(() => socket.write(drip), 20);
      await new Promise(resolve => setTimeout(resolve, 100));

      const finished = await api.drain(maxDrainMs);
      clearInterval(dripping);
      socket.destroy();

      expect(finished).to.equal(true);
    });
  }

  it('a stop cuts a client that does not read its response once the time is over, and reports it', async () => {
    const socket = connect(Number(new URL(url).port), '127.0.0.1');
    socket.write(rawRequest('GET /large'));
    await new Promise(resolve => socket.once('readable', resolve));
    expect(await api.drain(100)).to.equal(false);
    socket.destroy();
  });

  it('an idle connection stays open for longer than load balancers keep theirs', () => {
    expect(api.http.keepAliveTimeout).to.equal(75_000);
  });
});
