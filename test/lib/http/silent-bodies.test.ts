import type { AddressInfo } from 'node:net';
import { expect } from 'chai';
import Koa from 'koa';
import { pino } from 'pino';
import { readBody } from '../../../src/lib/http/request/read-body.ts';
import {
  type ApiServer,
  type ApiServerOptions,
  createApiServer,
} from '../../../src/lib/http/server/api-server.ts';
import { refuseUnparsed } from '../../../src/lib/http/server/refuse-unparsed.ts';
import { accessLog, type RequestOutcome } from '../../../src/lib/http/steps/access-log.ts';
import { limitDuration } from '../../../src/lib/http/steps/limit-duration.ts';
import { problemDetails } from '../../../src/lib/http/steps/problem-details.ts';
import { requestListener } from '../../../src/lib/seams/request-listener.ts';
import { rawRequest, sendRaw } from '../../support/raw-http.ts';

describe('a body that never comes', () => {
  let api: ApiServer;
  let url: string;
  let outcomes: RequestOutcome[];

  beforeEach(() => listen({ silenceMs: 300 }));
  afterEach(() => api.http.close().closeAllConnections());

  async function listen(times: Pick<ApiServerOptions, 'silenceMs' | 'limits'>): Promise<void> {
    outcomes = [];
    const log = pino({ level: 'silent' });
    const count = (outcome: RequestOutcome) => outcomes.push(outcome);
    const app = new Koa()
      .use(accessLog(log, count))
      .use(problemDetails(log))
      .use(limitDuration(5_000));
    app.use(async ctx => {
      if (ctx.path === '/unread') ctx.body = 'answered before the body has come';
      else ctx.body = JSON.stringify(await readBody(ctx, 1_000));
    });
    const refuse = refuseUnparsed(log, count);
    api = createApiServer({ keepAliveMs: 75_000, ...times, handle: requestListener(app), refuse });
    await new Promise<void>(resolve => api.http.listen(0, '127.0.0.1', resolve));
    url = `http://127.0.0.1:${(api.http.address() as AddressInfo).port}`;
  }

  const json = 'Content-Type: application/json';
  const requests = {
    'none of it': rawRequest('POST /', [json, 'Content-Length: 10']),
    'its begin': rawRequest('POST /', [json, 'Content-Length: 10'], '{"a"'),
    'one chunk': rawRequest('POST /', [json, 'Transfer-Encoding: chunked'], '4\r\n{"a"\r\n'),
  };
  for (const [what, request] of Object.entries(requests)) {
    it(`a request whose client sends ${what}, and then nothing, gets 408, and its connection is closed`, async () => {
      const { statuses, text, closed } = await sendRaw(url, request);
      expect(statuses).to.deep.equal([408]);
      expect(closed).to.equal(true);
      expect(text)
        .to.match(/"code":"request_timeout"/)
        .and.match(/^Connection: close\r$/im);
      expect(outcomes.map(({ method, status }) => [method, status])).to.deep.equal([['POST', 408]]);
    });
  }

  it('a request that was answered gets no second response when the rest of its body does not come', async () => {
    api.http.close();
    await listen({
      limits: { headersTimeout: 200, requestTimeout: 200, connectionsCheckingInterval: 50 },
    });
    const request = rawRequest('POST /unread', [json, 'Content-Length: 10'], '{"a"');
    const { statuses, closed } = await sendRaw(url, request);
    expect(statuses).to.deep.equal([200]);
    expect(closed).to.equal(true);
  });

  it('a request that follows a complete body on the same connection gets its response', async () => {
    const post = rawRequest('POST /', [json, 'Content-Length: 7'], '{"a":1}');
    const { statuses } = await sendRaw(url, post + post, { until: /\}(.|\r\n)*\}/ });
    expect(statuses).to.deep.equal([200, 200]);
  });
});
