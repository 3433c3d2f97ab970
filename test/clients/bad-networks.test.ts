import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect } from 'chai';
import {
  type BackOffice,
  createBackOffice,
  ProblemError,
  type Tokens,
} from '../../clients/typescript/src/back-office.ts';
import { accessTokenLifetimeSeconds } from '../../src/control/token-lifetime.ts';
import { eventually } from '../support/eventually.ts';
import { settle } from '../support/settle.ts';
import { controlSql, useWorld } from '../support/world.ts';

type Send = (request: Request) => Promise<Response>;
/** The answer of a network to a request: one of its own, or none. */
type Fault = () => Response;

const page = '<!doctype html><title>Log in to the network</title>';
const html = { 'Content-Type': 'text/html; charset=utf-8' };
const problem = { 'Content-Type': 'application/problem+json' };

/** Networks, and what proxies, gateways and captive portals respond in place of the service. */
const faults: Record<string, Fault> = {
  'no connection': () => {
    throw new TypeError('fetch failed');
  },
  'a login page with 200': () => new Response(page, { status: 200, headers: html }),
  'a login page without a media type': () => new Response(page, { status: 200 }),
  'an empty 200': () => new Response('', { status: 200 }),
  'JSON that is not ours': () => Response.json({ status: 'ok' }),
  'JSON that is cut': () => cutJson(),
  '401 of a proxy': () => new Response(page, { status: 401, headers: html }),
  '401 of a gateway with a problem': () =>
    new Response('{"code":"no_entry","title":"No","status":401}', {
      status: 401,
      headers: problem,
    }),
  '401 with half a problem': () =>
    new Response('{"code":"invalid_', { status: 401, headers: problem }),
  '403 of a firewall': () => new Response(page, { status: 403, headers: html }),
  '404 of a gateway that starts': () => new Response('no route', { status: 404 }),
  '407 of a proxy': () => new Response(page, { status: 407, headers: html }),
  '429 of a gateway': () => new Response(null, { status: 429, headers: { 'Retry-After': '0' } }),
  '500 of a gateway': () => new Response(page, { status: 500, headers: html }),
  '502 of a proxy': () => new Response(page, { status: 502, headers: html }),
  '503 of a balancer': () => new Response(null, { status: 503, headers: { 'Retry-After': '0' } }),
  '504 of a proxy': () => new Response(null, { status: 504 }),
  '511 of a captive portal': () => new Response(page, { status: 511, headers: html }),
};

function cutJson(): Response {
  const body = new ReadableStream({
    pull: controller => {
      controller.enqueue(new TextEncoder().encode('{"accessToken":"'));
      controller.error(new TypeError('terminated'));
    },
  });
  return new Response(body, { headers: { 'Content-Type': 'application/json' } });
}

describe('TypeScript client behind bad networks', () => {
  const world = useWorld();
  /** The fault of the present, for paths that it concerns. */
  let fault: { readonly of: RegExp; readonly make: Fault; times: number } | undefined;
  let hold: Send = request => fetch(request);
  let told: (Tokens | undefined)[] = [];

  const send: Send = async request => {
    if (fault && fault.times > 0 && fault.of.test(request.url)) {
      fault.times--;
      return fault.make();
    }
    return hold(request);
  };

  beforeEach(() => {
    fault = undefined;
    hold = request => fetch(request);
    told = [];
  });

  async function logIn(onTokens?: (tokens: Tokens | undefined) => void): Promise<BackOffice> {
    const client = createBackOffice({
      url: world.url,
      tenant: world.acme.guid,
      fetch: send,
      onTokens: onTokens ?? (tokens => void told.push(tokens)),
    });
    await client.login(world.acme.admin.email, world.acme.admin.password);
    return client;
  }

  /** @returns the status of a call; 0 when the network has thrown */
  const call = (client: BackOffice): Promise<number> =>
    client.GET('/api/v1/auth/me').then(
      ({ response, error }) => (error && response.ok ? -1 : response.status),
      error => {
        expect(error).to.be.instanceOf(TypeError);
        return 0;
      },
    );

  const passTime = (): void => {
    world.clock.offsetSeconds += accessTokenLifetimeSeconds + 60;
  };

  for (const [name, make] of Object.entries(faults)) {
    it(`${name} ends no session, during a call or a refresh, and the next call goes on`, async () => {
      const client = await logIn();

      fault = { of: /auth\/me/, make, times: 99 };
      const isOther = name === 'JSON that is not ours'; // nobody can know that
      expect(await call(client), 'a call').not.to.equal(isOther ? 0 : 200);
      fault = undefined;
      expect(await call(client), 'after the call').to.equal(200);

      passTime();
      fault = { of: /auth\/refresh/, make, times: 99 };
      expect(await call(client), 'a refresh').not.to.equal(200);
      fault = undefined;
      expect(await call(client), 'after the refresh').to.equal(200);

      expect(told, 'onTokens').to.have.length(2);
      expect(told).not.to.include(undefined);
    });

    it(`${name} lets a person log out of this device, and says whether the session has ended`, async () => {
      const client = await logIn();
      fault = { of: /auth/, make, times: 99 };

      const isEnded = await client.logout();

      expect(told.at(-1)).to.equal(undefined);
      fault = undefined;
      expect((await client.GET('/api/v1/auth/me')).response.status).to.equal(401);
      const [open] = await controlSql<{ count: number }>(
        world,
        `select count(*)::int as count from sessions where revoked_at is null
            and created_at = (select max(created_at) from sessions)`,
      );
      expect(isEnded && open?.count !== 0, 'says that it has ended').to.equal(false);
    });

    it(`${name} fails a list with an error of this client, and the list is whole afterwards`, async () => {
      const client = await logIn();
      await client.POST('/api/v1/OrderStatuses', { body: { Name: `List of ${name}` } });

      fault = { of: /OrderStatuses/, make, times: 99 };
      const failed: unknown = await readAll(client).catch(error => error);
      fault = undefined;

      expect(
        failed instanceof ProblemError || failed instanceof TypeError,
        String(failed),
      ).to.equal(true);
      expect(await readAll(client)).to.include(`List of ${name}`);
    });
  }

  /** Refusals: a program with a wrong address must end, not wait for ever. */
  const isRefusal = (name: string): boolean => /^40[134]/.test(name);

  for (const [name, make] of Object.entries(faults).filter(([each]) => !isRefusal(each))) {
    it(`${name} does not end a stream of changes, which skips nothing`, async () => {
      const client = await logIn();
      await settle(world.acme);
      const { response } = await client.GET('/api/v1/Changes', {
        params: { query: { after: 'now' } },
      });
      const after = response.headers.get('Next-Cursor') ?? '';
      await client.POST('/api/v1/OrderStatuses', { body: { Name: `Stream of ${name}` } });
      const stop = new AbortController();

      fault = { of: /stream/, make, times: 1 };
      const followed = client.followChanges(
        { after, resource: 'OrderStatus', include: 'record' },
        stop.signal,
      );
      const { value } = await followed.next();

      expect(value?.Record?.Name).to.equal(`Stream of ${name}`);
      stop.abort();
      await followed.return();
    });
  }

  it('a stream that is aborted while it waits for the service ends at once', async () => {
    const client = await logIn();
    const stop = new AbortController();
    fault = { of: /stream/, make: faults['511 of a captive portal'] as Fault, times: 99 };

    const next = client.followChanges({}, stop.signal).next();
    stop.abort();

    expect(await next.catch(error => error.name)).to.equal('AbortError');
  });

  it('a login that gets a page of the network throws a ProblemError, and the next one works', async () => {
    fault = { of: /auth\/login/, make: faults['a login page with 200'] as Fault, times: 1 };
    expect(await logIn().catch(error => error)).to.be.instanceOf(ProblemError);

    expect(await call(await logIn())).to.equal(200);
  });

  it('a read whose body is lost in its middle is made again', async () => {
    const client = await logIn();
    fault = { of: /auth\/me/, make: cutJson, times: 2 };

    expect(await call(client)).to.equal(200);
    expect(fault.times).to.equal(0);
  });

  // Node forgets the signal of a request when it collects garbage.
  it('a read that gets no response, and one whose body stops in its middle, are made again after half a minute, also after garbage collections', async () => {
    const client = await logIn();
    await client.POST('/api/v1/OrderStatuses', { body: { Name: 'Before a stall' } });
    await using stalled = await stalledService(/auth/);
    const sent: string[] = [];
    hold = request => {
      const { pathname } = new URL(request.url);
      sent.push(pathname);
      const isFirst = sent.indexOf(pathname) === sent.length - 1;
      return fetch(isFirst ? new Request(`${stalled.url}${pathname}`, request) : request);
    };

    const [status, list] = await Promise.all([call(client), client.GET('/api/v1/OrderStatuses')]);

    expect(status).to.equal(200);
    expect(list.data).to.be.an('array');
    expect(sent).to.have.length(4);
    // That of the body has ended; fetch keeps the one without a response for five minutes.
    await eventually(() => stalled.connections === 1);
  });

  it('a signal of the application ends a call and a stream that wait for the service, which are not sent again, also after garbage collections', async () => {
    const client = await logIn();
    await using stalled = await stalledService(/auth|stream/);
    hold = request => fetch(new Request(`${stalled.url}${new URL(request.url).pathname}`, request));
    const stop = new AbortController();
    const { signal } = stop;

    const ended = Promise.allSettled([
      client.GET('/api/v1/auth/me', { signal }),
      client.GET('/api/v1/OrderStatuses', { signal }),
      client.followChanges({}, signal).next(),
    ]);
    const other = client.GET('/api/v1/OrderStatuses').catch(error => error);
    await eventually(() => stalled.requests === 4 && stalled.collections > 2);
    stop.abort(new Error('enough'));

    const reasons = (await ended).map(each => each.status === 'rejected' && each.reason.message);
    expect(reasons).to.deep.equal(['enough', 'enough', 'enough']);

    // All of them lose their connections now, and only the other one is sent again, three times.
    const sent: string[] = [];
    hold = async request => {
      sent.push(new URL(request.url).pathname);
      throw new TypeError('fetch failed');
    };
    stalled.loseConnections();
    expect(await other).to.be.instanceOf(TypeError);
    expect(sent).to.deep.equal(Array(3).fill('/api/v1/OrderStatuses'));
  });

  it('a change that was limited is repeated after Retry-After, and a login that was limited fails at once', async () => {
    const client = await logIn();
    const limited = () => new Response(null, { status: 429, headers: { 'Retry-After': '1' } });
    const created = await client.POST('/api/v1/OrderStatuses', { body: { Name: 'Limited' } });
    const path = { id: created.data?.Id ?? 0 };

    fault = { of: /OrderStatuses/, make: limited, times: 2 };
    const changed = await client.PUT('/api/v1/OrderStatuses/{id}', {
      params: { path },
      body: { Name: 'Unlimited' },
    });
    expect(changed.response.status).to.equal(200);

    fault = { of: /auth\/login/, make: limited, times: 1 };
    expect((await logIn().catch(error => error)).status).to.equal(429);
  });

  it('a date in Retry-After counts from the date of the response, whatever the clock of this machine says', async () => {
    const client = await logIn();
    for (const aheadMs of [-3_600_000, 3_600_000]) {
      const now = Date.now() + aheadMs;
      const headers = {
        Date: new Date(now).toUTCString(),
        'Retry-After': new Date(now + 1_000).toUTCString(),
      };
      fault = {
        of: /auth\/me/,
        make: () => new Response(null, { status: 503, headers }),
        times: 1,
      };

      const startedAt = performance.now();
      expect(await call(client)).to.equal(200);
      expect(performance.now() - startedAt).to.be.within(900, 10_000);
    }
  });

  it('a logout during a refresh is not undone by its response', async () => {
    const client = await logIn();
    passTime();
    const refreshed = Promise.withResolvers<void>();
    const released = Promise.withResolvers<void>();
    hold = async request => {
      const response = await fetch(request);
      if (request.url.endsWith('/auth/refresh') && told.length === 1) {
        refreshed.resolve();
        await released.promise;
      }
      return response;
    };
    const called = call(client);
    await refreshed.promise;

    const isEnded = client.logout();
    released.resolve();

    expect(await isEnded).to.equal(true);
    expect(await called).to.equal(401);
    expect(told.map(tokens => tokens !== undefined)).to.deep.equal([true, false]);
    expect(await call(client)).to.equal(401);
  });

  it('an application that fails to store the new tokens keeps its session', async () => {
    let isFull = false;
    const client = await logIn(() => {
      if (isFull) throw new Error('no room');
    });
    isFull = true;

    for (let refresh = 0; refresh < 3; refresh++) {
      passTime();
      const first = await client.GET('/api/v1/auth/me').catch(error => error.message);
      expect(first).to.equal('no room');
      await controlSql(
        world,
        `update sessions set refreshed_at = refreshed_at - interval '2 minutes'`,
      );
      expect(await call(client)).to.equal(200);
    }
  });
});

async function readAll(client: BackOffice): Promise<string[]> {
  const names: string[] = [];
  for await (const { Name } of client.all('/api/v1/OrderStatuses')) names.push(Name);
  return names;
}

const collectGarbage = (): void => {
  setFlagsFromString('--expose-gc');
  runInNewContext('gc')();
};

/**
 * Starts a service that responds to no request whose path matches, and to the others with the
 * beginning of a body. Collects garbage until it is closed.
 */
async function stalledService(silent: RegExp) {
  let requests = 0;
  let collections = 0;
  const server = createServer(({ url }, response) => {
    requests++;
    if (silent.test(url ?? '')) return;
    response.writeHead(200, { 'Content-Type': 'application/json', 'Content-Length': '1000' });
    response.write('[{"Id":');
  });
  const sockets = new Set<Socket>();
  server.on('connection', socket => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  let timer: NodeJS.Timeout;
  const collect = (): void => {
    const startedAt = performance.now();
    collectGarbage();
    collections++;
    // On a slow machine, the service would get no turn between the collections.
    const tookMs = performance.now() - startedAt;
    timer = setTimeout(collect, Math.max(250, 5 * tookMs));
  };
  collect();

  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    get requests() {
      return requests;
    },
    get collections() {
      return collections;
    },
    get connections() {
      return sockets.size;
    },
    loseConnections: () => server.closeAllConnections(),
    async [Symbol.asyncDispose]() {
      clearTimeout(timer);
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}
