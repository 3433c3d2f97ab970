import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { expect } from 'chai';
import Koa from 'koa';
import { z } from 'zod';
import { limitDuration } from '../../src/http/limit-duration.ts';
import { requestListener } from '../../src/http/request-listener.ts';
import { respond } from '../../src/route-steps.ts';
import { defineRoute } from '../../src/tenancy/define-route.ts';

const lines = ['Code,Name\r\n', 'kg,Kilogram\r\n', 'm,Metre\r\n'];

describe('a route with a media type of its own', () => {
  let server: Server;
  let url: string;

  before(async () => {
    const route = defineRoute({
      method: 'GET',
      path: '/api/v1/Units.csv',
      access: 'user',
      tag: 'UnitOfMeasure',
      summary: 'All units as CSV',
      contentType: 'text/csv; charset=utf-8',
      response: z.any(),
      handler: async () => Readable.from(lines),
    });
    const app = new Koa();
    app.use(limitDuration(10_000));
    app.use(respond(route));
    server = createServer(requestListener(app));
    await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
    url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  });
  after(() => server.close());

  it('a stream that a handler returns is sent piece by piece under the media type of the route', async () => {
    const response = await fetch(url);
    expect(response.status).to.equal(200);
    expect(response.headers.get('content-type')).to.equal('text/csv; charset=utf-8');
    expect(response.headers.get('transfer-encoding')).to.equal('chunked');
    expect(await response.text()).to.equal(lines.join(''));
  });
});
