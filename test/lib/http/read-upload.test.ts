import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { expect } from 'chai';
import Koa from 'koa';
import { pino } from 'pino';
import { readUpload } from '../../../src/lib/http/request/read-upload.ts';
import { type ApiServer, createApiServer } from '../../../src/lib/http/server/api-server.ts';
import { refuseUnparsed } from '../../../src/lib/http/server/refuse-unparsed.ts';
import { limitDuration } from '../../../src/lib/http/steps/limit-duration.ts';
import { problemDetails } from '../../../src/lib/http/steps/problem-details.ts';
import { requestListener } from '../../../src/lib/seams/request-listener.ts';
import { rawRequest, sendRaw } from '../../support/raw-http.ts';

/**
 * The time is six times that between two pieces, so that a pause of this process does not end
 * an upload.
 */
const minProgress = { bytes: 1_000, ms: 2_400 };
const contract = { mediaType: 'text/csv', maxBytes: 20_000, minProgress };

describe('uploads', () => {
  let api: ApiServer;
  let url: string;
  let received: number;
  let storeMs: number;

  beforeEach(async () => {
    received = 0;
    storeMs = 0;
    const log = pino({ level: 'silent' });
    const app = new Koa().use(problemDetails(log)).use(limitDuration(60_000));
    app.use(async ctx => {
      if (ctx.method === 'POST') {
        await readUpload(ctx, contract, async chunk => {
          await delay(storeMs);
          received += chunk.length;
        });
      }

      ctx.body = 'received';
    });
    api = createApiServer({
      keepAliveMs: 75_000,
      limits: { headersTimeout: 1_000, requestTimeout: 1_200, connectionsCheckingInterval: 20 },
      handle: requestListener(app),
      refuse: refuseUnparsed(log, () => {}),
    });
    await new Promise<void>(resolve => api.http.listen(0, '127.0.0.1', resolve));
    url = `http://127.0.0.1:${(api.http.address() as AddressInfo).port}`;
  });
  afterEach(() => api.http.close().closeAllConnections());

  /**
   * Sends the head of an upload, then `piece` every `everyMs` until all is sent or the
   * connection is closed.
   */
  async function upload(bytes: number, piece: number, everyMs: number, headers: string[] = []) {
    let write = (_: string): void => {};
    const exchange = sendRaw(
      url,
      rawRequest('POST /', ['Content-Type: text/csv', `Content-Length: ${bytes}`, ...headers]),
      { until: /received$/, exposeWrite: exposed => (write = exposed) },
    );
    let isOver = false;
    void exchange.then(() => (isOver = true));
    for (let sent = 0; sent < bytes && !isOver; sent += piece) {
      await delay(everyMs);
      if (!isOver) write('x'.repeat(Math.min(piece, bytes - sent)));
    }
    return exchange;
  }

  it('an upload that makes progress may take several times the time limit of other requests', async () => {
    const startedAt = performance.now();
    const { statuses } = await upload(10_000, 1_000, 400);
    expect(statuses).to.deep.equal([200]);
    expect(received).to.equal(10_000);
    expect(performance.now() - startedAt).to.be.above(3_600);
  });

  it('an upload that sends a byte now and then is refused with 408 and its connection closed', async () => {
    // all of it would take two minutes
    const { statuses, closed, text } = await upload(6_000, 1, 20);
    expect(statuses).to.deep.equal([408]);
    expect(closed).to.equal(true);
    expect(text).to.match(/"code":"request_timeout"/);
  });

  it('the time that storing an upload takes does not count as time of the client', async () => {
    storeMs = 2_800;
    const { statuses } = await upload(2_000, 1_000, 20);
    expect(statuses).to.deep.equal([200]);
  });

  it('a request after a slow upload on the same connection has the time limit of requests again', async () => {
    let write = (_: string): void => {};
    const head = ['Content-Type: text/csv', 'Content-Length: 6000'];
    const exchange = sendRaw(url, rawRequest('POST /', head), { exposeWrite: w => (write = w) });

    for (let piece = 0; piece < 6; piece++) {
      await delay(100);
      write('x'.repeat(1_000));
    }
    await delay(50);
    write('GET / HTTP/1.1\r\nHost: backoffice.test\r\nA: ');

    const { statuses, closed } = await exchange;
    expect(statuses).to.deep.equal([200, 408]);
    expect(closed).to.equal(true);
  });

  it('an upload that is too large ends its connection, also when its body goes on', async () => {
    const { statuses, closed } = await upload(100_000, 1_000, 5);
    expect(statuses).to.deep.equal([413]);
    expect(closed).to.equal(true);
  });

  it('a client that waits for 100 Continue may send its upload', async () => {
    const { statuses } = await upload(2_000, 2_000, 20, ['Expect: 100-continue']);
    expect(statuses.at(0)).to.equal(100);
    expect(statuses.at(-1)).to.equal(200);
  });
});
