import { randomBytes } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { readConfig } from '../../../src/lib/config/config.ts';
import { readTraceparent } from '../../../src/lib/tracing/trace-requests.ts';
import { type Receiver, startReceiver } from '../../sales/webhooks/receiver.ts';
import { Client } from '../../support/client.ts';
import {
  attributesOf,
  type Collector,
  type Span,
  startCollector,
} from '../../support/collector.ts';
import { root } from '../../support/command-line.ts';
import { eventually } from '../../support/eventually.ts';
import { createWorld, type World } from '../../support/world.ts';

describe('tracing', () => {
  let collector: Collector;
  let receiver: Receiver;
  let world: World;
  const clients = new Map<string, Client>();

  before(async () => {
    [collector, receiver] = await Promise.all([startCollector(), startReceiver()]);
    world = await createWorld({
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      OTEL_BSP_SCHEDULE_DELAY: '20',
      OTEL_PROPAGATORS: 'tracecontext',
      TENANT_CONNECTIONS: '2',
      WEBHOOK_TRUSTED_RECEIVERS: receiver.trusted,
    });
    for (const tenant of [world.acme, world.globex]) {
      clients.set(tenant.slug, await world.login(tenant));
    }
  });
  after(async () => {
    await world?.close();
    collector?.server.close();
    await receiver?.close();
  });

  const clientOf = (slug: string): Client => clients.get(slug) as Client;

  /**
   * Sends a request with a `traceparent`.
   * @returns its spans, once that of the request has arrived
   */
  async function trace(
    send: (headers: Record<string, string>) => Promise<unknown>,
  ): Promise<Span[]> {
    const [traceId, parentId] = [randomBytes(16).toString('hex'), randomBytes(8).toString('hex')];
    await send({ traceparent: `00-${traceId}-${parentId}-01` });
    await eventually(async () =>
      collector.spans(traceId).some(({ parentSpanId }) => parentSpanId === parentId),
    );
    return collector.spans(traceId);
  }

  it('a read has spans for its rate limit, connection and query, below the span that traceparent names', async () => {
    const spans = await trace(headers => clientOf('acme').get('/api/v1/Entities', headers));
    const [request, ...others] = spans.filter(({ name }) => name === 'GET /api/v1/Entities');
    expect(others).to.deep.equal([]);

    expect(attributesOf(request)).to.include({
      'http.route': '/api/v1/Entities',
      'http.response.status_code': 200,
      'backoffice.tenant': 'acme',
    });
    const steps = spans
      .filter(({ parentSpanId }) => parentSpanId === request?.spanId)
      .map(({ name }) => name);
    expect(steps).to.include.members(['rate limit', 'connection', 'query']);

    const lines = world.logs.filter(line => line.includes(request?.traceId ?? ''));
    expect(lines.map(line => JSON.parse(line).route)).to.deep.equal(['/api/v1/Entities']);
    expect(JSON.parse(lines[0] ?? '').trace_id).to.equal(request?.traceId);
  });

  it('the span of a request names the public address of the service, not one that a client has written', async () => {
    const published = await world.startAnotherServer({
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      OTEL_BSP_SCHEDULE_DELAY: '20',
      OTEL_PROPAGATORS: 'tracecontext',
      PUBLIC_URL: 'https://api.example.com',
    });
    const forged = { 'X-Forwarded-Host': 'forged.example.net', 'X-Forwarded-Proto': 'http' };

    const spans = await trace(headers =>
      clientOf('acme')
        .at(published.url)
        .get('/api/v1/Currency', { ...headers, ...forged }),
    );

    const request = spans.find(({ name }) => name === 'GET /api/v1/Currency');
    expect(attributesOf(request)).to.include({
      'url.scheme': 'https',
      'server.address': 'api.example.com',
      'server.port': 443,
    });
  });

  it('entries of other systems in tracestate stay with each span of the request', async () => {
    const tracestate = 'vendor=t61rcWkgMzE,other@system=1';

    const spans = await trace(headers =>
      clientOf('acme').get('/api/v1/Entities?limit=7', { ...headers, tracestate }),
    );

    expect(spans).to.have.length.greaterThan(2);
    for (const { name, traceState } of spans) {
      expect(traceState, name).to.equal(tracestate);
    }
  });

  it('a malformed or too long tracestate is left out, and the trace goes on', async () => {
    for (const tracestate of ['no pair', `vendor=${'x'.repeat(600)}`]) {
      const spans = await trace(headers =>
        clientOf('acme').get('/api/v1/Entities?limit=8', { ...headers, tracestate }),
      );

      expect(spans[0]?.traceState ?? '').to.equal('');
    }
  });

  it('the first request of a tenant has a span for opening its connection, within the wait for it', async () => {
    let count = 0;
    // Another connection of the tenant may be free by then on a busy machine.
    const [connect, spans] = await eventually(async () => {
      const client = await world.login(await world.provision(`traced-${count++}`));
      const spans = await trace(headers => client.get('/api/v1/Currency', headers));
      const connect = spans.find(({ name }) => name === 'connect');
      return connect && ([connect, spans] as const);
    });
    const wait = spans.find(({ name }) => name === 'connection');
    expect(connect.parentSpanId).to.equal(wait?.spanId);
  });

  it('a change has a span for its transaction, with the span of its statement below it', async () => {
    const body = { Code: 'EUR', Name: 'Euro' };
    const spans = await trace(headers => clientOf('acme').post('/api/v1/Currency', body, headers));
    const transaction = spans.find(({ name }) => name === 'transaction');
    const statement = spans.find(({ parentSpanId }) => parentSpanId === transaction?.spanId);
    expect(statement?.name).to.equal('query');
    const query = { 'db.system.name': 'postgresql', 'db.query.summary': 'INSERT currencies' };
    expect(attributesOf(statement)).to.deep.equal(query);
  });

  it('a login has spans for the wait for a password hash, and for the hash', async () => {
    const { admin, guid } = world.acme;
    const spans = await trace(headers =>
      world.anonymous.post('/api/v1/auth/login', admin, { 'X-Tenant': guid, ...headers }),
    );
    expect(spans.map(({ name }) => name)).to.include.members(['wait for a hash', 'hash']);
  });

  it('the webhooks of a tenant have a span, with one for each query and each message below it', async () => {
    const webhook = { Url: receiver.url('/hook'), Resources: ['OrderStatus'] };
    expect((await clientOf('globex').post('/api/v1/Webhooks', webhook)).status).to.equal(201);
    receiver.respond('/hook', response => response.writeHead(503).end());
    await clientOf('globex').post('/api/v1/OrderStatuses', { Name: 'Traced' });

    const send = await eventually(() => collector.spans().find(({ name }) => name === 'send'));
    expect(attributesOf(send)).to.deep.equal({
      'http.response.status_code': 503,
      'error.type': '503',
    });

    const spans = await eventually(() => {
      const found = collector.spans(send.traceId);
      return found.some(({ spanId }) => spanId === send.parentSpanId) && found;
    });

    const root = spans.find(({ spanId }) => spanId === send.parentSpanId);
    expect(root?.name).to.equal('webhooks');
    expect(root?.parentSpanId).to.equal(undefined);
    expect(attributesOf(root)['backoffice.tenant']).to.equal('globex');
    expect(spans.map(({ name }) => name)).to.include.members(['connection', 'query']);
  });

  it('a cached response has no span of a query, and a request whose client does not record it has no span', async () => {
    const read = (headers = {}) => clientOf('acme').get('/api/v1/Currency', headers);
    // An empty list is a 404, which is not cached; nor is what is read beside a change.
    await clientOf('acme').post('/api/v1/Currency', { Code: 'TRC', Name: 'Traced' });
    await eventually(async () => {
      await read();
      const names = (await trace(read)).map(({ name }) => name);
      return !names.includes('query') && !names.includes('connection');
    });

    const traceId = randomBytes(16).toString('hex');
    await clientOf('acme').get('/api/v1/Entities', {
      traceparent: `00-${traceId}-${'1'.repeat(16)}-00`,
    });
    await trace(headers => clientOf('acme').get('/api/v1/Entities', headers)); // exported after it
    expect(collector.spans(traceId)).to.deep.equal([]);
    expect(world.logs.some(line => JSON.parse(line).trace_id === traceId)).to.equal(true);
  });

  it('by default, a request continues no trace that its client names, and neither spans nor log lines have its id', async () => {
    const { url } = await world.startAnotherServer({ OTEL_PROPAGATORS: 'none' });
    const traceId = randomBytes(16).toString('hex');
    const stranger = {
      traceparent: `00-${traceId}-${'1'.repeat(16)}-01`,
      tracestate: 'vendor=written-by-a-stranger',
    };
    const before = collector.bodies.length;
    const marked = `/api/v1/Nothing-${traceId.slice(0, 8)}`;

    for (const [path, tenant] of [
      ['/health', world.acme],
      [marked, world.acme],
      ['/api/v1/auth/me', world.globex],
    ] as const) {
      await new Client(url).get(path, { ...stranger, 'X-Tenant': tenant.guid });
    }
    await eventually(async () => collector.bodies.length > before);

    expect(collector.spans(traceId)).to.deep.equal([]);
    expect(collector.bodies.join('')).to.not.include('written-by-a-stranger');
    const lines = world.logs.map(line => JSON.parse(line));
    expect(lines.filter(({ trace_id }) => trace_id === traceId)).to.deep.equal([]);
    expect(readConfig({}).continuesTraces).to.equal(false);
  });

  it('the spans of two busy tenants are never in one trace', async () => {
    const slugs = Array.from({ length: 60 }, (_, index) => (index % 2 ? 'acme' : 'globex'));
    const traces = await Promise.all(
      slugs.map(slug => trace(headers => clientOf(slug).get('/api/v1/Entities?limit=5', headers))),
    );

    for (const [index, spans] of traces.entries()) {
      const requests = spans.filter(({ name }) => name.startsWith('GET '));
      expect(requests.map(span => attributesOf(span)['backoffice.tenant'])).to.deep.equal([
        slugs[index],
      ]);
      for (const name of ['connection', 'query']) {
        expect(spans.filter(span => span.name === name)).to.have.length(1);
      }

      const ids = new Set(spans.map(({ spanId }) => spanId));
      for (const { parentSpanId = '' } of spans.filter(span => span !== requests[0])) {
        expect(ids.has(parentSpanId)).to.equal(true);
      }
    }
  });

  it('no span has a secret, a value of a request or the text of a statement', async () => {
    const body = { Name: 'Value of a request', EntityType: 'customer' };
    await trace(headers => clientOf('acme').post('/api/v1/Entities', body, headers));
    await trace(headers => clientOf('acme').get('/api/v1/Countries/code/value-of-a-path', headers));

    const exported = collector.bodies.join('');
    const { accessToken = '', refreshToken = '' } = clientOf('acme').tokens ?? {};
    const { email, password } = world.acme.admin;

    for (const secret of [
      accessToken,
      refreshToken,
      email,
      password,
      'Value of a request',
      'value-of-a-path',
    ]) {
      expect(exported).not.to.include(secret);
    }
    expect(exported).not.to.match(/\$1|where |returning |127\.0\.0\.1|postgres:/i);
  });

  it('without a collector in the settings, the service imports no part of OpenTelemetry', async () => {
    const { service } = await world.startAnotherServer({ OTEL_SDK_DISABLED: 'true' });
    expect(service.port).to.be.greaterThan(0);
    const entries = await readdir(join(root, 'src'), { recursive: true });
    for (const name of entries.filter(each => each.endsWith('.ts'))) {
      const source = await readFile(join(root, 'src', name), 'utf8');
      for (const [line] of source.matchAll(/^import .*'@opentelemetry\/.*$/gm)) {
        expect(line, name).to.match(/^import type /);
      }
    }
  });
});

describe('traceparent', () => {
  const [trace, span] = ['4bf92f3577b34da6a3ce929d0e0e4736', '00f067aa0ba902b7'];
  it('a header of W3C Trace Context is read, and a malformed one is ignored', () => {
    const parent = { traceId: trace, spanId: span, traceFlags: 1 };
    expect(readTraceparent(`00-${trace}-${span}-01`)).to.deep.equal(parent);
    expect(readTraceparent(`01-${trace}-${span}-03-more`)).to.deep.equal(parent);

    const malformed = [
      undefined,
      '',
      `00-${trace}-${span}`,
      `00-${trace}-${span}-01-more`,
      `ff-${trace}-${span}-01`,
      `00-${'0'.repeat(32)}-${span}-01`,
      `00-${trace}-${'0'.repeat(16)}-01`,
      `00-${trace.toUpperCase()}-${span}-01`,
    ];

    for (const header of malformed) expect(readTraceparent(header), header).to.equal(undefined);
  });
});
