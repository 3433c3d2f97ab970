import { expect } from 'chai';
import { createMetrics } from '../../src/metrics/metrics.ts';
import { createWorld, type World } from '../support/world.ts';

/** The value of one series of the text format; 0 when it is not there yet. */
function value(text: string, series: string): number {
  const line = text.split('\n').find(each => each.startsWith(`${series} `));
  return Number(line?.slice(series.length + 1) ?? 0);
}

describe('metrics', () => {
  let world: World;
  before(async () => {
    world = await createWorld();
  });
  after(() => world.close());
  const read = async (): Promise<string> => {
    const answer = await fetch(`http://127.0.0.1:${world.service.managementPort}/metrics`);
    expect(answer.status).to.equal(200);
    expect(answer.headers.get('content-type')).to.match(/^text\/plain; version=0\.0\.4/);
    return answer.text();
  };
  const list = '/api/v1/EntityStatus';

  it('the port of the API does not serve metrics', async () => {
    expect((await world.anonymous.get('/metrics')).status).to.be.within(401, 404);
  });

  it('metrics count requests by route and status, password hashes, connections and cached responses', async () => {
    const before = await read();
    const user = await world.login(world.acme);
    for (const [path, status] of [
      [list, 200],
      [list, 200],
      [`${list}/2`, 200],
      [`${list}/4711`, 404],
    ] as const)
      expect((await user.get(path)).status).to.equal(status);
    const after = await read();
    const more = (series: string): number => value(after, series) - value(before, series);
    const server = /^database_connections_limit\{server="([^"]+)"\}/m.exec(after)?.[1];
    expect({
      login: more('http_requests_total{method="POST",route="/api/v1/auth/login",status="200"}'),
      list: more(`http_requests_total{method="GET",route="${list}",status="200"}`),
      missing: more(`http_requests_total{method="GET",route="${list}/:id",status="404"}`),
      timed: more(`http_request_duration_seconds_count{route="${list}"}`),
      acme: more('tenant_requests_total{tenant="acme"}'),
      globex: more('tenant_requests_total{tenant="globex"}'),
      hashes: more('password_hashes_total'),
      fromMemory: more('response_cache_hits_total'),
      limit: value(after, `database_connections_limit{server="${server}"}`),
      feed: value(after, 'change_feed_current'),
    }).to.deep.equal({
      login: 1,
      list: 2,
      missing: 1,
      timed: 2,
      acme: 4,
      globex: 0,
      hashes: 1,
      fromMemory: 1,
      limit: world.config.connectionBudget - world.config.controlConnections - 1, // the change feed
      feed: 1,
    });
    expect(more(`database_connections_opened_total{server="${server}"}`)).to.be.above(0);
  });

  it('metrics contain no path, no address, no secret and no user', async () => {
    const user = await world.login(world.acme);
    await user.get('/api/v1/Nowhere/secret-path?token=secret-token');
    await world.anonymous.get('/secret-path');
    const text = await read();
    expect(text).to.include('route="none"');
    for (const told of ['secret', world.acme.admin.email, world.acme.guid, world.acme.database, '127.0.0.1/'])
      expect(text).to.not.include(told);
  });

  it('the number of labels is bounded, however many tenants there are', async () => {
    const { databases } = world.service;
    const metrics = createMetrics({
      databases,
      responseCache: { bytes: 0, counts: { hits: 0, misses: 0, revalidations: 0 } },
      feed: { current: true },
      passwords: world.passwords,
    });
    for (let i = 0; i < 1_000; i++)
      metrics.count({ method: 'GET', route: list, status: 200, ms: 1, tenant: `tenant-${i}` });
    const text = await metrics.render();
    const series = text.split('\n').filter(line => line.startsWith('tenant_requests_total{'));
    expect(series).to.have.length(101);
    expect(value(text, 'tenant_requests_total{tenant="other"}')).to.equal(900);
  });
});
