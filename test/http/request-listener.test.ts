import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect } from 'chai';
import Koa, { type Context } from 'koa';
import { requestListener } from '../../src/http/request-listener.ts';

const answers: Record<string, (ctx: Context) => void> = {
  '/text': ctx => {
    ctx.body = 'ünïcode';
  },
  '/bytes': ctx => {
    ctx.body = Buffer.from([1, 2, 3]);
  },
  '/none': ctx => {
    ctx.status = 204;
  },
  '/unchanged': ctx => {
    ctx.body = 'not sent';
    ctx.status = 304;
  },
  '/elsewhere': ctx => ctx.redirect('/text'),
  '/fault': () => {
    throw new Error('a fault that nobody expected');
  },
  '/header': ctx => ctx.set('X-Broken', 'line\nbreak'),
};

describe('Every answer', () => {
  const faults: unknown[] = [];
  let server: Server;
  let url: string;
  before(async () => {
    const app = new Koa();
    app.on('error', fault => faults.push(fault));
    app.use(ctx => answers[ctx.path]?.(ctx));
    server = createServer(requestListener(app)).listen(0, '127.0.0.1');
    await once(server, 'listening');
    url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  });
  after(() => server.close());

  const ask = async (path: string, method = 'GET') => {
    const answer = await fetch(url + path, { method, redirect: 'manual' });
    const { status, headers } = answer;
    return { status, length: headers.get('content-length'), bytes: [...Buffer.from(await answer.arrayBuffer())] };
  };

  it('leaves as Koa would have sent it', async () => {
    const text = [...Buffer.from('ünïcode')];
    expect(await ask('/text')).to.deep.equal({ status: 200, length: '9', bytes: text });
    expect(await ask('/text', 'HEAD')).to.deep.equal({ status: 200, length: '9', bytes: [] });
    expect(await ask('/bytes')).to.deep.equal({ status: 200, length: '3', bytes: [1, 2, 3] });
    expect(await ask('/none')).to.deep.equal({ status: 204, length: null, bytes: [] });
    expect(await ask('/unchanged')).to.deep.equal({ status: 304, length: null, bytes: [] });
    expect(await ask('/elsewhere')).to.include({ status: 302 });
    expect(await ask('/nowhere')).to.include({ status: 404 });
    expect(faults).to.deep.equal([]);
  });

  it('is 500 after a fault, which is told, and the next one is answered', async () => {
    for (const path of ['/fault', '/header']) {
      faults.length = 0;
      expect(await ask(path)).to.include({ status: 500 });
      expect(faults).to.have.length(1);
      expect(await ask('/text')).to.include({ status: 200 });
    }
  });
});
