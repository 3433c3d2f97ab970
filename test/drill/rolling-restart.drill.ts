import { spawn, spawnSync } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { eventually } from '../support/eventually.ts';
import { freePort } from '../support/free-port.ts';
import { createServiceProcesses, type ServiceProcess } from '../support/service-processes.ts';
import { type Served, sendSteadily, summaryOf } from '../support/steady-load.ts';
import { createWorld, type World } from '../support/world.ts';

const requestsPerSecond = 100;
const calmMs = 10_000;
/** The balancer asks once a second and believes the third answer. */
const noticeMs = 4_000;

/** A process of the service on ports of its own, which a restart keeps. */
interface Member {
  readonly port: number;
  readonly managementPort: number;
  service: ServiceProcess;
}

describe('drill: rolling restart behind HAProxy', function () {
  let world: World;
  let folder: string;
  let balancer: ReturnType<typeof spawn>;
  let url: string;
  let members: Member[];
  const processes = createServiceProcesses();

  before(async () => {
    if (spawnSync('haproxy', ['-v']).error) {
      console.log('haproxy is not installed: this drill is skipped');
      this.ctx.skip();
    }
    world = await createWorld();
    folder = await mkdtemp(join(tmpdir(), 'backoffice-drill-'));
    members = await Promise.all([startMember(), startMember()]);
    const port = await freePort();
    url = `http://127.0.0.1:${port}`;
    await writeFile(join(folder, 'haproxy.cfg'), balancerConfig(port));
    balancer = spawn('haproxy', ['-db', '-f', join(folder, 'haproxy.cfg')], { stdio: 'ignore' });
    await eventually(
      async () => (await fetch(`${url}/docs`).catch(() => undefined))?.status === 200,
      30_000,
    );
  });
  after(async () => {
    balancer?.kill('SIGKILL');
    await processes.killAll();
    await world?.close();
    if (folder) await rm(folder, { recursive: true, force: true });
  });

  async function startMember(): Promise<Member> {
    const [port, managementPort] = [await freePort(), await freePort()];
    return { port, managementPort, service: await startOn(port, managementPort) };
  }

  /** Starts a process without `PUBLIC_URL`, with everything else as by default. */
  function startOn(port: number, managementPort: number): Promise<ServiceProcess> {
    const ports = { PORT: String(port), MANAGEMENT_PORT: String(managementPort) };
    return processes.start({ ...world.environment, ...ports, PUBLIC_URL: '' });
  }

  /** HAProxy with its default retries and without redispatch, and one check a second. */
  function balancerConfig(port: number): string {
    const servers = members.map(
      (member, index) =>
        `  server s${index} 127.0.0.1:${member.port} check inter 1s port ${member.managementPort}`,
    );
    return [
      'defaults',
      '  mode http',
      '  timeout connect 5s',
      '  timeout client 50s',
      '  timeout server 50s',
      'frontend api',
      `  bind 127.0.0.1:${port}`,
      '  default_backend service',
      'backend service',
      '  option httpchk GET /health/ready',
      ...servers,
      '',
    ].join('\n');
  }

  /**
   * Sends reads, changes and refreshes at a fixed rate, however long their responses take,
   * until `until` resolves.
   */
  async function load(until: Promise<unknown>): Promise<Served[]> {
    const admin = (await world.login(world.acme)).at(url);
    let { refreshToken } = admin.tokens!;
    const startedAt = performance.now();
    return sendSteadily(requestsPerSecond, until, async number => {
      if (number % 100 === 50) {
        const tenant = { 'X-Tenant': world.acme.guid };
        const { status, body } = await admin.post('/api/v1/auth/refresh', { refreshToken }, tenant);
        if (status === 200) refreshToken = body.refreshToken;
        return status;
      }
      if (number % 10 !== 0) return (await admin.get('/api/v1/EntityStatus')).status;
      return (await admin.post('/api/v1/EntityStatus', { Title: `Status ${number} ${startedAt}` }))
        .status;
    });
  }

  it('a rolling restart of two processes fails no request, rejects no token and slows no request down', async () => {
    const calm = await load(sleep(calmMs));

    const restart = async (): Promise<void> => {
      for (const member of members) {
        const stoppedAt = performance.now();
        member.service.process.kill('SIGTERM');
        const { code } = await member.service.ended;
        console.log(`stopped with ${code} after ${Math.round(performance.now() - stoppedAt)} ms`);
        expect(code).to.equal(0);

        member.service = await startOn(member.port, member.managementPort);
        await sleep(noticeMs);
      }
    };

    const during = await load(restart());
    const figures = { calm: summaryOf(calm), during: summaryOf(during) };
    console.log(JSON.stringify(figures));

    expect(
      during.map(({ status }) => status).filter(status => status !== 200 && status !== 201),
    ).to.deep.equal([]);
  });
});
