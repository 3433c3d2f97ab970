import { spawn, spawnSync } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { type RunningScript, startScript } from '../support/command-line.ts';
import { eventually } from '../support/eventually.ts';
import { freePort } from '../support/free-port.ts';
import { createWorld, type World } from '../support/world.ts';

const requestsPerSecond = 100;
const calmMs = 10_000;
/** The balancer asks once a second and believes the third answer. */
const noticeMs = 4_000;

interface Served {
  readonly status: number | string;
  readonly ms: number;
}

/** A process of the service on ports of its own, which a restart keeps. */
interface Member {
  readonly port: number;
  readonly managementPort: number;
  running: RunningScript;
}

describe('drill: rolling restart behind HAProxy', function () {
  let world: World;
  let folder: string;
  let balancer: ReturnType<typeof spawn>;
  let url: string;
  let members: Member[];

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
    await eventually(async () => (await fetch(`${url}/docs`).catch(() => undefined))?.status === 200, 30_000);
  });
  after(async () => {
    balancer?.kill('SIGKILL');
    for (const { running } of members ?? []) running.process.kill('SIGKILL');
    await Promise.all((members ?? []).map(({ running }) => running.ended));
    await world?.close();
    if (folder) await rm(folder, { recursive: true, force: true });
  });

  async function startMember(): Promise<Member> {
    const [port, managementPort] = [await freePort(), await freePort()];
    return { port, managementPort, running: await startOn(port, managementPort) };
  }

  /** Starts a process without `PUBLIC_URL`, with everything else as by default. */
  async function startOn(port: number, managementPort: number): Promise<RunningScript> {
    const ports = { PORT: String(port), MANAGEMENT_PORT: String(managementPort) };
    const running = startScript('src/main.ts', [], {
      ...world.environment,
      ...ports,
      PUBLIC_URL: '',
      LOG_LEVEL: 'info',
    });
    await eventually(() => running.output.stdout.includes('"listening"'), 60_000);
    return running;
  }

  /** HAProxy with its default retries and without redispatch, and one check a second. */
  function balancerConfig(port: number): string {
    const servers = members.map(
      (member, index) => `  server s${index} 127.0.0.1:${member.port} check inter 1s port ${member.managementPort}`,
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

  /** Sends reads, changes and refreshes at a fixed rate, however long their responses take, until `until` resolves. */
  async function load(until: Promise<unknown>): Promise<Served[]> {
    const admin = (await world.login(world.acme)).at(url);
    let { refreshToken } = admin.tokens!;
    const served: Promise<Served>[] = [];
    let ended = false;
    void until.finally(() => {
      ended = true;
    });
    const startedAt = performance.now();
    for (let i = 0; !ended; i++) {
      const wait = startedAt + (i * 1_000) / requestsPerSecond - performance.now();
      if (wait > 0) await sleep(wait);
      served.push(
        timed(async () => {
          if (i % 100 === 50) {
            const response = await admin.post(
              '/api/v1/auth/refresh',
              { refreshToken },
              { 'X-Tenant': world.acme.guid },
            );
            if (response.status === 200) refreshToken = response.body.refreshToken;
            return response;
          }
          if (i % 10 === 0) return admin.post('/api/v1/EntityStatus', { Title: `Status ${i} ${startedAt}` });
          return admin.get('/api/v1/EntityStatus');
        }),
      );
    }
    return Promise.all(served);
  }

  async function timed(request: () => Promise<{ status: number }>): Promise<Served> {
    const startedAt = performance.now();
    const status = await request().then(
      response => response.status,
      error => String(error.cause ?? error),
    );
    return { status, ms: performance.now() - startedAt };
  }

  it('a rolling restart of two processes fails no request, rejects no token and slows no request down', async () => {
    const calm = await load(sleep(calmMs));
    const restart = async (): Promise<void> => {
      for (const member of members) {
        const stoppedAt = performance.now();
        member.running.process.kill('SIGTERM');
        const { code } = await member.running.ended;
        console.log(`stopped with ${code} after ${Math.round(performance.now() - stoppedAt)} ms`);
        expect(code).to.equal(0);
        member.running = await startOn(member.port, member.managementPort);
        await sleep(noticeMs);
      }
    };
    const during = await load(restart());
    const figures = { calm: summary(calm), during: summary(during) };
    console.log(JSON.stringify(figures));
    const failed = during.filter(({ status }) => status !== 200 && status !== 201);
    expect(failed.map(({ status }) => status)).to.deep.equal([]);
  });
});

function summary(served: Served[]): Record<string, number> {
  const times = served.map(({ ms }) => ms).sort((a, b) => a - b);
  const at = (share: number): number => Math.round((times[Math.floor(times.length * share)] ?? 0) * 10) / 10;
  return { requests: times.length, p50: at(0.5), p95: at(0.95), p99: at(0.99), max: at(0.9999) };
}
