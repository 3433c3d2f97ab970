import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { connect } from 'node:net';
import { expect } from 'chai';
import { pino } from 'pino';
import { type ApiServer, createApiServer } from '../../../src/lib/http/server/api-server.ts';
import { refuseUnparsed } from '../../../src/lib/http/server/refuse-unparsed.ts';
import { eventually } from '../../support/eventually.ts';
import { rawRequest, sendRaw } from '../../support/raw-http.ts';
import { useWorld } from '../../support/world.ts';

const mebibyte = 1024 * 1024;

describe('pipelines', () => {
  let api: ApiServer;
  let url: string;
  /** The paths of the requests that were started, in their order. */
  let started: (string | undefined)[];
  /** The responses of `/held`, which wait until the test ends them. */
  let held: ServerResponse[];
  let running: number;
  let maxRunning: number;

  beforeEach(async () => {
    [started, held, running, maxRunning] = [[], [], 0, 0];
    api = createApiServer({
      keepAliveMs: 75_000,
      refuse: refuseUnparsed(pino({ level: 'silent' }), () => {}),
      handle: (request, response) => {
        started.push(request.url);
        maxRunning = Math.max(maxRunning, ++running);
        response.prependOnceListener('finish', () => running--);
        let bytes = 0;
        request.on('data', chunk => (bytes += chunk.length));
        if (request.url === '/held') held.push(response);
        else if (request.url === '/last') response.setHeader('Connection', 'close').end('last');
        else if (request.method === 'POST') request.on('end', () => response.end(`<${bytes}>`));
        else setImmediate(() => response.end(`<${request.url}>`));
      },
    });
    await new Promise<void>(resolve => api.http.listen(0, '127.0.0.1', resolve));
    url = `http://127.0.0.1:${(api.http.address() as AddressInfo).port}`;
  });
  afterEach(() => api.http.close().closeAllConnections());

  it('requests of a pipeline run one after the other, and get their responses in order', async () => {
    const paths = Array.from({ length: 21 }, (_, i) => `/${i}`);
    const pipeline = paths.map(path => rawRequest(`GET ${path}`)).join('');
    const { text } = await sendRaw(url, pipeline, { until: /<\/20>/ });
    expect([...text.matchAll(/<(\/\d+)>/g)].map(([, path]) => path)).to.deep.equal(paths);
    expect(maxRunning).to.equal(1);
  });

  it('after a pipeline of the maximum length, the connection serves the next one', async () => {
    let write = (_: string): void => {};
    const pipeline = rawRequest('GET /').repeat(20);
    const exchange = sendRaw(url, pipeline + rawRequest('GET /first'), {
      until: /<\/second>/,
      exposeWrite: exposed => (write = exposed),
    });
    await eventually(() => started.includes('/first') && running === 0);
    write(pipeline + rawRequest('GET /second'));
    expect((await exchange).statuses).to.deep.equal(Array(42).fill(200));
  });

  it('a connection is not read while requests of it wait, and is read to its end afterwards', async () => {
    let received = () => 0;
    api.http.once('connection', socket => (received = () => socket.bytesRead));

    const body = 'x'.repeat(40 * mebibyte); // more than the buffers of both sides hold
    const post = rawRequest('POST /', [`Content-Length: ${body.length}`]);
    const exchange = sendRaw(url, [rawRequest('GET /held') + rawRequest('GET /2'), post + body], {
      until: /<\d+>/,
    });

    const response = await eventually(() => held[0]);
    for (let turn = 0; turn < 200; turn++) await new Promise(resolve => setImmediate(resolve));
    expect(received()).to.be.below(mebibyte);

    response.end('held');
    const { statuses, text } = await exchange;
    expect(statuses).to.deep.equal([200, 200, 200]);
    expect(text).to.match(new RegExp(`<${body.length}>$`));
  });

  it('a connection on which more than 20 requests wait is closed, and none of them is started', async () => {
    const exchange = sendRaw(
      url,
      rawRequest('GET /held') + rawRequest('GET /waiting').repeat(10_000),
    );
    expect(await exchange).to.deep.include({ closed: true, statuses: [] });
    expect(started).to.deep.equal(['/held']);
  });

  it('no request is started after the response that closes its connection', async () => {
    const { statuses, closed } = await sendRaw(
      url,
      rawRequest('GET /last') + rawRequest('GET /never').repeat(20),
    );
    expect(statuses).to.deep.equal([200]);
    expect(closed).to.equal(true);
    expect(started).to.deep.equal(['/last']);
  });

  it('bytes that are no request do not take the response of the request before them', async () => {
    const exchange = sendRaw(url, `${rawRequest('GET /held')}no request\r\n\r\n`);
    const response = await eventually(() => held[0]);
    response.end('held');
    const { text, statuses, closed } = await exchange;
    expect(statuses).to.deep.equal([200]);
    expect(closed).to.equal(true);
    expect(text).to.match(/Connection: close\r\n(.|\r\n)*held$/);
  });

  it('a client that closes its connection leaves none of its waiting requests to be started', async () => {
    const client = connect(Number(new URL(url).port), '127.0.0.1');
    client.write(rawRequest('GET /held') + rawRequest('GET /waiting').repeat(20));
    const response = await eventually(() => held[0]);

    client.resetAndDestroy();
    await once(client, 'close');
    response.end('held');
    await once(response, 'close');

    expect(
      (await sendRaw(url, rawRequest('GET /other'), { until: /other/ })).statuses,
    ).to.deep.equal([200]);
    expect(started).to.deep.equal(['/held', '/other']);
  });

  it('a request with an expectation other than 100-continue is handled as one without', async () => {
    const pipeline = rawRequest('GET /', ['Expect: nothing']).repeat(3) + rawRequest('GET /last');
    expect((await sendRaw(url, pipeline)).statuses).to.deep.equal([200, 200, 200, 200]);
    expect(maxRunning).to.equal(1);
  });
});

describe('pipelines above the rate limit', () => {
  const world = useWorld({ RATE_LIMIT_GLOBAL: '5/60s' });

  it('a connection that goes on after ten rejections is closed with the tenth', async () => {
    const [known, other] = [world.acme, world.globex].map(({ guid }) => `X-Tenant: ${guid}`);
    const requests = [known, other].map(tenant =>
      rawRequest('GET /api/v1/EntityStatus', [String(tenant)]),
    );
    const { statuses, text, closed } = await sendRaw(world.url, requests.join('').repeat(10));
    expect(statuses.filter(status => status === 429)).to.have.lengthOf(10);
    expect(statuses.at(-1)).to.equal(429);
    expect(text.match(/Connection: close/g)).to.have.lengthOf(1);
    expect(closed).to.equal(true);
  });
});
