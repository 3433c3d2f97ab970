import { connect } from 'node:net';
import { expect } from 'chai';
import { readConfig } from '../../../src/config.ts';
import { type Installation, openInstallation } from '../../../src/installation.ts';
import { withConnection } from '../../../src/postgres/connection.ts';
import { type RunningServer, startServer } from '../../../src/server.ts';
import type { Client } from '../../support/client.ts';
import { runScript } from '../../support/command-line.ts';
import { eventually } from '../../support/eventually.ts';
import { makeNextBuild, type NextBuild } from '../../support/next-build.ts';
import { type SilentProxy, startSilentProxy } from '../../support/silent-proxy.ts';
import { postgresUrl } from '../../support/test-server.ts';
import { createWorld, sql, type World } from '../../support/world.ts';

const path = '/api/v1/EntityStatus';

describe('requests during a migration', () => {
  let world: World;
  let next: NextBuild;
  let proxy: SilentProxy;
  let installation: Installation;
  /** Reaches its control database through the proxy. */
  let service: RunningServer;
  let client: Client;

  before(async () => {
    [world, next, proxy] = await Promise.all([createWorld(), makeNextBuild(), startSilentProxy()]);
    const config = readConfig({ ...world.environment, DATABASE_URL: proxy.through(world.installation.controlUrl) });
    installation = await openInstallation(config);
    service = await startServer({ config, installation, log: world.log, passwords: world.passwords });
  });
  after(async () => {
    await service.stop();
    await installation.close();
    await proxy.close();
    await world.close();
    await next.remove();
  });
  beforeEach(async () => {
    await sql(world.acme, `drop table if exists labels; delete from migrations where name = '${next.head}'`);
    await control('update tenants set schema_version = ?', [next.currentHead]);
    client = (await world.login(world.acme)).at(`http://127.0.0.1:${service.port}`);
    // Opens a connection that is verified, and then idle.
    await eventually(async () => (await client.get(path, { 'Cache-Control': 'no-cache' })).status === 200);
  });

  const control = <Row extends object>(text: string, values: unknown[] = []) =>
    world.control.em.fork().execute<Row[]>(text, values);
  const controlName = () => new URL(world.installation.controlUrl).pathname.slice(1);
  const titles = async () =>
    (await sql<{ title: string }>(world.acme, 'select title from entity_statuses')).map(({ title }) => title);

  async function migrate(): Promise<void> {
    const { code, stderr } = await runScript(next.file('scripts/tenant.ts'), ['migrate', 'acme'], world.environment);
    expect([code, stderr]).to.deep.equal([0, '']);
    expect((await sql(world.acme, 'select from labels')).length).to.equal(1);
  }

  it('a write that waits for its announcement during a migration gets 503 and changes nothing', async () => {
    const announcement = proxy.hold(controlName(), packet => packet.includes('announce'));
    const write = client.post(path, { Title: 'Old build' });
    try {
      await eventually(() => announcement.isHolding);
      await migrate();
    } finally {
      announcement.release();
    }
    expect((await write).status).to.equal(503);
    expect(await titles()).to.not.include('Old build');
  });

  it('a write whose body arrives after its tenant was migrated gets 503 and changes nothing', async () => {
    const body = JSON.stringify({ Title: 'Slow body' });
    const socket = connect(service.port, '127.0.0.1');
    let response = '';
    socket.setEncoding('utf8').on('data', text => (response += text));
    socket.write(
      [
        `POST ${path} HTTP/1.1`,
        'Host: backoffice.test',
        `Authorization: Bearer ${client.tokens?.accessToken}`,
        'Content-Type: application/json',
        `Content-Length: ${body.length}`,
        '',
        body.slice(0, 5),
      ].join('\r\n'),
    );
    try {
      await migrate();
      socket.write(body.slice(5));
      await eventually(() => response.includes('\r\n\r\n'));
    } finally {
      socket.destroy();
    }
    expect(response).to.match(/^HTTP\/1\.1 503 /);
    expect(await titles()).to.not.include('Slow body');
  });

  it('a migration run ends no sooner than 1 s after it took its last tenant out of service', async () => {
    await operator('select pg_terminate_backend(pid, 2000) from pg_stat_activity where datname = $1', [
      world.acme.database,
    ]);
    await migrate();
    const [run] = await control<{ ms: number }>(
      `select (extract(epoch from r.finished_at - o.started_at) * 1000)::int as ms
         from migration_runs r join migration_outcomes o on run_id = r.id order by r.id desc limit 1`,
    );
    expect(run?.ms).to.be.within(950, 3_000);
  });
});

function operator<Row extends object>(text: string, values: unknown[]): Promise<Row[]> {
  return withConnection(postgresUrl(), async client => (await client.query(text, values)).rows as Row[]);
}
