import { setTimeout as delay } from 'node:timers/promises';
import { expect } from 'chai';
import pg from 'pg';
import { checkManifest } from '../../src/operator/lifecycle/manifest.ts';
import { provision } from '../../src/operator/lifecycle/provision.ts';
import { generatePassword } from '../../src/operator/people/users.ts';
import { createServiceLogin } from '../../src/operator/schema/service-login.ts';
import { withConnection } from '../../src/postgres/connection.ts';
import { runScript } from '../support/command-line.ts';
import { eventually } from '../support/eventually.ts';
import { type OwnServer, startOwnServer } from '../support/own-server.ts';
import { createServiceProcesses, type ServiceProcess } from '../support/service-processes.ts';
import { postgresUrl, quickSettings } from '../support/test-server.ts';
import { createWorld, type World } from '../support/world.ts';

const budget = 40;
/** The whole fleet takes half an hour on a busy machine: `TENANTS=30` is enough to see each fault. */
const tenantCount = Number(process.env.TENANTS ?? 300);
const maxProvisionMs = 120_000;
const loadPerProcess = 16;
const settings = {
  CONNECTION_BUDGET: String(budget),
  CONTROL_CONNECTIONS: '3',
  PORT: '0',
  MANAGEMENT_PORT: '0',
};

interface LoadedTenant {
  slug: string;
  token: string;
  /** Titles of statuses whose creation was confirmed. */
  created: string[];
}

interface Service extends ServiceProcess {
  /** When it listened, by `performance.now()`. */
  listeningAt: number;
  servedAt: number | undefined;
}

/** Service processes that share three servers: under load, with commands, and while processes and databases fail. */
describe('drill: processes that share the connection budgets of three servers', function () {
  this.timeout(900_000);
  let world: World;
  const servers: OwnServer[] = [];
  const sessions: pg.Client[] = [];
  const tenants: LoadedTenant[] = [];
  const services: Service[] = [];
  const processes = createServiceProcesses();
  const background: Promise<void>[] = [];
  const peaks = [0, 0, 0];
  const wrong: string[] = [];
  const counts = new Map<string, number>();
  let serviceUrl: string;
  let isRunning = true;
  let written = 0;

  before(async () => {
    world = await createWorld(settings);
    for (const name of ['second', 'third']) {
      const server = await startOwnServer(name, [...quickSettings, 'max_connections=100']);
      servers.push(server);
      await runScript('scripts/tenant.ts', ['server', 'add', name], world.environment, server.url);
    }
    const startedAt = performance.now();
    for (let n = 0; n < tenantCount && performance.now() - startedAt < maxProvisionMs; n++) {
      const slug = `tenant-${n}`;
      const manifest = {
        slug,
        name: slug,
        server: ['default', 'second', 'third'][n % 3],
        admin: { email: 'a@b.test' },
      };
      const { tenant, logins } = await provision(world.installation, world.passwords, checkManifest(manifest, slug));
      const { tokens } = await world.login(
        { ...world.acme, guid: tenant.guid, slug },
        { email: 'a@b.test', password: logins[0]?.password ?? '' },
      );
      tenants.push({ slug, token: tokens?.accessToken ?? '', created: [] });
    }
    console.log({ tenants: tenants.length, seconds: Math.round((performance.now() - startedAt) / 1_000) });
    await world.service.stop();
    serviceUrl = await createServiceLogin(world.environment.DATABASE_URL ?? '', generatePassword());
    for (const url of [postgresUrl(), ...servers.map(server => server.url)]) {
      const session = new pg.Client({ connectionString: url, application_name: 'sampler' });
      await session.connect();
      background.push(sample(session, sessions.push(session) - 1));
    }
  });
  after(async () => {
    isRunning = false;
    await processes.killAll();
    await Promise.all(background);
    for (const session of sessions) await session.end();
    await world.close();
    for (const server of servers) await server.close();
  });
  afterEach(function () {
    console.log({ test: this.currentTest?.title, peaks: [...peaks], counts: Object.fromEntries(counts) });
    peaks.fill(0);
    counts.clear();
  });

  /** Connections of a process of the installation, by the id in their names. */
  async function connections(session: pg.Client): Promise<string[]> {
    const { rows } = await session.query<{ name: string }>(
      `select application_name as name from pg_stat_activity
        where backend_type = 'client backend' and application_name ~ '^backoffice-[a-z-]+ [0-9a-f-]{36}$'`,
    );
    return rows.map(({ name }) => name);
  }

  async function sample(session: pg.Client, server: number): Promise<void> {
    while (isRunning) {
      peaks[server] = Math.max(peaks[server] ?? 0, (await connections(session)).length);
      await delay(50);
    }
  }

  async function start(): Promise<Service> {
    const started = await processes.start({ ...world.environment, ...settings, DATABASE_URL: serviceUrl });
    const service: Service = { ...started, listeningAt: performance.now(), servedAt: undefined };
    services.push(service);
    for (let n = 0; n < loadPerProcess; n++) background.push(load(service));
    return service;
  }

  async function load(service: Service): Promise<void> {
    while (isRunning && service.process.exitCode === null && service.process.signalCode === null) {
      const tenant = tenants[Math.floor(Math.random() * tenants.length)] as LoadedTenant;
      const isWrite = Math.random() < 0.1;
      const title = `${tenant.slug}/${written++}`;
      const knownBefore = [...tenant.created];
      const body = isWrite ? JSON.stringify({ Title: title, Weighting: 1 }) : undefined;
      const response = await fetch(`${service.url}/api/v1/EntityStatus`, {
        method: isWrite ? 'POST' : 'GET',
        headers: {
          Authorization: `Bearer ${tenant.token}`,
          'Cache-Control': 'no-cache',
          ...(isWrite && { 'Content-Type': 'application/json' }),
        },
        signal: AbortSignal.timeout(15_000),
        ...(body && { body }),
      }).catch(() => undefined);
      const text = await response?.text().catch(() => undefined);
      const key = text === undefined ? 'cut' : String(response?.status);
      counts.set(key, (counts.get(key) ?? 0) + 1);
      if (!response || text === undefined) await delay(100);
      else if (response.status === 201) tenant.created.push(title);
      else if (response.status === 200) {
        service.servedAt ??= performance.now();
        const titles = (JSON.parse(text) as { Title: string }[]).map(each => each.Title);
        const isOwn = titles.every(each => !each.includes('/') || each.startsWith(`${tenant.slug}/`));
        if (!isOwn || !knownBefore.every(each => titles.includes(each))) wrong.push(`${tenant.slug}: ${titles}`);
      } else if (response.status !== 503 || !(response.headers.has('retry-after') || text.includes('may have been'))) {
        wrong.push(`${response.status} ${text}`);
      }
    }
  }

  function expectWithinBudget(): void {
    expect(Math.max(...peaks), 'peak').to.be.at.most(budget);
    expect(wrong.slice(0, 3), 'wrong responses').to.deep.equal([]);
  }

  /**
   * Resolves to the time, in ms, until a process has no share of the second and third server, and the others may open
   * nearly all connections, or as many as they want.
   */
  async function untilOthersMayUse(part: number, id: string): Promise<number> {
    const startedAt = performance.now();
    await withConnection(world.installation.controlUrl, control =>
      eventually(async () => {
        const { rowCount } = await control.query(
          `select from connection_grants group by server
            having coalesce(sum(granted) filter (where process::text = $1), 0) > 0
                or sum(granted + reserved) < least($2::numeric, sum(wanted + reserved))`,
          [id, part * budget],
        );
        return rowCount === 0;
      }, 60_000),
    );
    return Math.round(performance.now() - startedAt);
  }

  async function idOf(service: Service): Promise<string> {
    const { stdout } = await runScript('scripts/tenant.ts', ['processes', '--json'], world.environment);
    const list: { id: string; pid: number }[] = JSON.parse(stdout);
    return list.find(({ pid }) => pid === service.process.pid)?.id ?? '';
  }

  async function expectStartsAtOnce(count: number): Promise<void> {
    const started = await Promise.all(Array.from({ length: count }, start));
    await delay(15_000);
    console.log({ servedAfterMs: started.map(({ servedAt = 0, listeningAt }) => Math.round(servedAt - listeningAt)) });
    expectWithinBudget();
    for (const { servedAt = Number.POSITIVE_INFINITY, listeningAt } of started)
      expect(servedAt - listeningAt).to.be.below(3_000);
  }

  it('four processes that start at once stay within the budget, and serve within three seconds of listening', () =>
    expectStartsAtOnce(4));

  it('commands during the load stay within the budget', async () => {
    const run = (...args: string[]) => runScript('scripts/tenant.ts', args, world.environment);
    const startedAt = performance.now();
    const results = await Promise.all([
      run('provision', 'late', '--name', 'Late', '--admin-email', 'a@late.test'),
      run('migrate', '--all', '--concurrency', '20'),
      run('list', '--json'),
    ]);
    console.log({ ms: Math.round(performance.now() - startedAt), stderr: results.map(({ stderr }) => stderr) });
    for (const { code, stderr } of results) expect(code, stderr).to.equal(0);
    expectWithinBudget();
  });

  it('the share of a killed process is usable again within ten seconds', async () => {
    const killed = services.shift() as Service;
    const id = await idOf(killed);
    killed.process.kill('SIGKILL');
    const ms = await untilOthersMayUse(0.85, id);
    console.log({ ms });
    await delay(5_000);
    expectWithinBudget();
    expect(ms).to.be.below(10_000);
  });

  it('the share of a stopped process is usable again within twelve seconds, and it goes on within the budget', async () => {
    const stopped = services[0] as Service;
    const id = await idOf(stopped);
    stopped.process.kill('SIGSTOP');
    const ms = await untilOthersMayUse(0.85, id);
    const { stdout } = await runScript('scripts/tenant.ts', ['processes', '--json'], world.environment);
    console.log({ ms, isGone: !stdout.includes(id) });
    await delay(Math.max(0, 30_000 - ms));
    stopped.process.kill('SIGCONT');
    await delay(15_000);
    expectWithinBudget();
    expect(ms).to.be.below(12_000);
  });

  it('a minute without control database takes no connection above the budget, and all serve again afterwards', async () => {
    const control = new URL(world.installation.controlUrl).pathname.slice(1);
    await sessions[0]?.query(`alter database ${control} allow_connections false`);
    await sessions[0]?.query('select pg_terminate_backend(pid) from pg_stat_activity where datname = $1', [control]);
    await delay(60_000);
    counts.clear();
    await sessions[0]?.query(`alter database ${control} allow_connections true`);
    const startedAt = performance.now();
    for (const service of services) service.servedAt = undefined;
    await eventually(() => services.every(({ servedAt }) => servedAt !== undefined), 60_000);
    console.log({ ms: Math.round(performance.now() - startedAt) });
    await delay(10_000);
    expectWithinBudget();
  });

  it('eight processes that start at once stay within the budget, and serve within three seconds of listening', async () => {
    for (const service of services) service.process.kill('SIGTERM');
    await Promise.all(services.map(({ ended }) => ended));
    await expectStartsAtOnce(8);
  });
});
