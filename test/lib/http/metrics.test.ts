import { expect } from 'chai';
import { createMetrics } from '../../../src/service/metrics/metrics.ts';
import { apiRoutes } from '../../../src/service/routes.ts';
import { reserveOf } from '../../../src/tenancy/connections/share.ts';
import { eventually } from '../../support/eventually.ts';
import { useWorld } from '../../support/world.ts';

/**
 * Returns the value of one series in the text format, or 0 if the text does not have the
 * series.
 */
function value(text: string, series: string): number {
  const line = text.split('\n').find(candidate => candidate.startsWith(`${series} `));
  return Number(line?.slice(series.length + 1) ?? 0);
}

describe('metrics', () => {
  const world = useWorld();
  const readMetrics = async (): Promise<string> => {
    const response = await fetch(`http://127.0.0.1:${world.service.managementPort}/metrics`);
    expect(response.status).to.equal(200);
    expect(response.headers.get('content-type')).to.match(/^text\/plain; version=0\.0\.4/);
    return response.text();
  };
  const list = '/api/v1/EntityStatus';

  it('metrics are not served on the port of the API', async () => {
    expect((await world.anonymous.get('/metrics')).status).to.be.within(401, 404);
  });

  it('the time of a thing that was never done is absent, and not 1970', async () => {
    const text = await eventually(async () => {
      const read = await readMetrics();
      return /^backup_tenants_unarchived \d/m.test(read) && read;
    });

    expect(text).to.match(/^# TYPE backup_last_success_timestamp_seconds gauge$/m);
    expect(text).to.not.match(/^(backup|migration)_\w+_timestamp_seconds 0$/m);
    expect(text).to.not.match(/^backup_\w+_timestamp_seconds /m);
  });

  it('metrics count requests by route and status, password hashes, connections and cached responses', async () => {
    const tenant = await world.provision('initech'); // without a connection
    const before = await readMetrics();
    const user = await world.login(tenant);

    for (const [path, status] of [
      [list, 200],
      [list, 200],
      [`${list}/2`, 200],
      [`${list}/4711`, 404],
    ] as const) {
      expect((await user.get(path)).status).to.equal(status);
    }

    const after = await readMetrics();
    const increase = (series: string): number => value(after, series) - value(before, series);
    const server = /^database_connections_limit\{server="([^"]+)"\}/m.exec(after)?.[1];

    expect({
      login: increase('http_requests_total{method="POST",route="/api/v1/auth/login",status="200"}'),
      list: increase(`http_requests_total{method="GET",route="${list}",status="200"}`),
      missing: increase(`http_requests_total{method="GET",route="${list}/:id",status="404"}`),
      timed: increase(`http_request_duration_seconds_count{route="${list}"}`),
      hashes: increase('password_hashes_total'),
      fromMemory: increase('response_cache_hits_total'),
      feed: value(after, 'change_feed_current'),
    }).to.deep.equal({
      login: 1,
      list: 2,
      missing: 1,
      timed: 2,
      hashes: 1,
      fromMemory: 1,
      feed: 1,
    });
    expect(increase(`database_connections_opened_total{server="${server}"}`)).to.be.above(0);

    // Without the change feed, and the reserve for commands.
    const { connectionBudget, controlConnections } = world.config;
    const limit = connectionBudget - reserveOf(connectionBudget) - controlConnections - 1;
    await eventually(
      async () =>
        value(await readMetrics(), `database_connections_limit{server="${server}"}`) === limit,
    );
  });

  it('metrics contain no request path, no client address, no secret, no user and no tenant', async () => {
    const user = await world.login(world.acme);
    await user.get('/api/v1/Nowhere/secret-path?token=secret-token');
    await world.anonymous.get('/secret-path');

    const text = await readMetrics();
    expect(text).to.include('route="none"');

    for (const secret of [
      'secret',
      world.acme.admin.email,
      world.acme.guid,
      world.acme.database,
      'acme',
      '127.0.0.1/',
    ]) {
      expect(text).to.not.include(secret);
    }
  });

  it('every status of every route makes at most 3,000 series', async () => {
    const { databases } = world.service;
    const metrics = createMetrics({
      databases,
      unsentResponses: { bytes: 0, cut: 0 },
      responseCache: { bytes: 0, counts: { hits: 0, misses: 0 } },
      feed: { current: true },
      secrets: { isReady: true },
      passwords: world.passwords,
      logOutput: { droppedLines: 0 },
      mails: { sent: 0, failed: 0, refused: 0 },
      rateLimitStore: { isFallback: false },
      heldFeeds: { oldest: undefined },
      webhooks: { succeeded: 0, failed: 0, running: 0 },
      readFleet: async () => undefined,
      schemaVersion: '0001-first',
    });

    const routes = apiRoutes({} as never);
    for (const { method, path: route } of routes) {
      for (const status of [200, 400, 401, 403, 404, 499, 503]) {
        metrics.count({
          method,
          route,
          status,
          ms: 1,
          bytes: 0,
          tenant: undefined,
          reason: 'expired',
        });
      }
    }

    const text = await metrics.render();
    const series = text.split('\n').filter(line => /^\w/.test(line));
    expect(series.length).to.be.within(1_000, 3_000);
  });
});
