import { once } from 'node:events';
import { createServer, type RequestListener, request, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { isDeepStrictEqual } from 'node:util';
import { expect } from 'chai';
import Koa, { type Context } from 'koa';
import { requestListener } from '../../../src/lib/seams/request-listener.ts';
import { eventually } from '../../support/eventually.ts';

/** The parts of one response that a client receives. */
interface Received {
  status: number | undefined;
  headers: Record<string, unknown>;
  bytes: Buffer;
  /** False when the connection ended before the response did. */
  complete: boolean;
}

const handlers: Record<string, (ctx: Context) => void> = {
  '/text': ctx => {
    ctx.body = 'ünïcode';
  },
  '/bytes': ctx => {
    ctx.body = Buffer.from([1, 2, 3]);
  },
  '/no-content': ctx => {
    ctx.status = 204;
  },
  '/no-content-null': ctx => {
    ctx.body = null;
  },
  '/no-content-before-text': ctx => {
    ctx.status = 204;
    ctx.body = 'not sent';
  },
  '/no-content-with-type': ctx => {
    ctx.status = 204;
    ctx.type = 'text/plain';
  },
  '/not-modified': ctx => {
    ctx.body = 'not sent';
    ctx.status = 304;
  },
  '/not-modified-null': ctx => {
    ctx.body = null;
    ctx.status = 304;
  },
  '/not-modified-stream': ctx => {
    ctx.body = Readable.from(['not sent']);
    ctx.status = 304;
  },
  '/ok-null': ctx => {
    ctx.body = null;
    ctx.status = 200;
  },
  '/ok-without-body': ctx => {
    ctx.status = 200;
  },
  '/redirect': ctx => ctx.redirect('/text'),
  '/object': ctx => {
    ctx.body = { name: 'ünïcode', list: [1, null] };
  },
  '/object-created': ctx => {
    ctx.status = 201;
    ctx.body = {};
  },
  '/stream': ctx => {
    ctx.body = Readable.from(['ünï', 'code']);
  },
  '/stream-with-type': ctx => {
    ctx.status = 202;
    ctx.type = 'text/csv';
    ctx.length = 4;
    ctx.body = Readable.from(['a;b\n']);
  },
  '/web-stream': ctx => {
    ctx.body = new Blob(['ünïcode']).stream();
  },
  '/blob': ctx => {
    ctx.body = new Blob(['ünïcode'], { type: 'text/plain' });
  },
  '/fetched': ctx => {
    ctx.body = new Response('ünïcode', { status: 203, headers: { 'X-Source': 'elsewhere' } });
  },
  '/sent-by-itself': ctx => {
    ctx.respond = false;
    ctx.body = 'text';
    ctx.res.writeHead(202).end('sent');
  },
};

const failingHandlers: Record<string, (ctx: Context) => void> = {
  '/thrown': () => {
    throw new Error('an unexpected error');
  },
  '/malformed-header': ctx => ctx.set('X-Broken', 'line\nbreak'),
  '/stream-that-fails-midway': ctx => {
    ctx.body = Readable.from(failAfter('begun'));
  },
  '/stream-that-fails-at-once': ctx => {
    ctx.body = Readable.from(failAfter());
  },
  '/object-that-is-no-json': ctx => {
    ctx.body = { number: 1n };
  },
};

async function* failAfter(...chunks: string[]): AsyncGenerator<string> {
  yield* chunks;
  throw new Error('the source failed');
}

describe('request listener', () => {
  let direct: Served;
  let koa: Served;
  before(async () => {
    direct = await serve(requestListener);
    koa = await serve(app => app.callback());
  });
  beforeEach(() => {
    direct.errors.clear();
    koa.errors.clear();
  });
  after(() => {
    direct.server.close();
    koa.server.close();
  });

  for (const path of [...Object.keys(handlers), '/unknown']) {
    for (const method of ['GET', 'HEAD']) {
      it(`the response to ${method} ${path} equals that of app.callback()`, async () => {
        const [received, expected] = await Promise.all([
          direct.receive(path, method),
          koa.receive(path, method),
        ]);
        expect(received).to.deep.equal(expected);
        expect(received.complete).to.equal(true);
        expect(direct.errors.get(path)).to.equal(undefined);
      });
    }
  }

  for (const path of Object.keys(failingHandlers)) {
    it(`the response and errors of ${path} equal those of app.callback(), and the server continues`, async () => {
      const [received, expected] = await Promise.all([direct.receive(path), koa.receive(path)]);
      expect(received).to.deep.equal(expected);
      await eventually(
        () =>
          koa.errors.has(path) && isDeepStrictEqual(direct.errors.get(path), koa.errors.get(path)),
      );
      expect(await direct.receive('/text')).to.include({ status: 200, complete: true });
    });
  }

  it('text, bytes, streams and objects arrive whole, and empty responses have no body', async () => {
    const text = Buffer.from('ünïcode');
    const bytesOf = async (path: string, method?: string) =>
      (await direct.receive(path, method)).bytes;

    expect(await bytesOf('/bytes')).to.deep.equal(Buffer.from([1, 2, 3]));
    for (const path of ['/text', '/stream', '/web-stream', '/blob', '/fetched']) {
      expect(await bytesOf(path), path).to.deep.equal(text);
    }
    expect(JSON.parse(String(await bytesOf('/object')))).to.deep.equal({
      name: 'ünïcode',
      list: [1, null],
    });

    for (const path of ['/no-content', '/no-content-before-text', '/not-modified', '/ok-null']) {
      expect(await bytesOf(path), path).to.have.length(0);
    }
    for (const path of Object.keys(handlers)) {
      expect(await bytesOf(path, 'HEAD'), path).to.have.length(0);
    }
  });

  it('a stream that fails midway ends the connection, so the client sees an incomplete response', async () => {
    const { status, bytes, complete } = await direct.receive('/stream-that-fails-midway');
    expect({ status, bytes: String(bytes), complete }).to.deep.equal({
      status: 200,
      bytes: 'begun',
      complete: false,
    });
  });

  it('a stream is destroyed when its client disconnects', async () => {
    let destroyed = false;
    handlers['/endless'] = ctx => {
      const endless = new Readable({
        read() {
          this.push('x'.repeat(1_000));
        },
        destroy(error, done) {
          destroyed = true;
          done(error);
        },
      });
      ctx.body = endless;
    };

    const outgoing = request(`${direct.url}/endless`).end();
    const [incoming] = await once(outgoing, 'response');
    await once(incoming, 'data');

    outgoing.on('error', () => {}).destroy();
    await eventually(() => destroyed);

    delete handlers['/endless'];
  });
});

interface Served {
  server: Server;
  url: string;
  /** Messages of the errors that the application reported, by path. */
  errors: Map<string, string[]>;
  receive(path: string, method?: string): Promise<Received>;
}

async function serve(listenerOf: (app: Koa) => RequestListener): Promise<Served> {
  const errors = new Map<string, string[]>();
  const app = new Koa();
  app.on('error', (error: Error, ctx: Context) => {
    errors.set(ctx.path, [...(errors.get(ctx.path) ?? []), error.message]);
  });
  app.use(ctx => ({ ...handlers, ...failingHandlers })[ctx.path]?.(ctx));
  const server = createServer(listenerOf(app)).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { server, url, errors, receive: (path, method = 'GET') => receive(url + path, method) };
}

function receive(url: string, method: string): Promise<Received> {
  return new Promise(resolve => {
    const outgoing = request(url, { method, agent: false });
    outgoing.on('error', () =>
      resolve({ status: undefined, headers: {}, bytes: Buffer.alloc(0), complete: false }),
    );

    outgoing.on('response', async incoming => {
      const { date: _, ...headers } = incoming.headers;
      const chunks: Buffer[] = [];

      try {
        for await (const chunk of incoming) chunks.push(chunk);
      } catch {
        // The connection ended before the response did; `complete` is false then.
      }

      resolve({
        status: incoming.statusCode,
        headers,
        bytes: Buffer.concat(chunks),
        complete: incoming.complete,
      });
    });

    outgoing.end();
  });
}
