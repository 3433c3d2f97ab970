import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { eventually } from '../support/eventually.ts';
import { freePort } from '../support/free-port.ts';
import { nginxConfig } from '../support/nginx-config.ts';
import { createServiceProcesses, type ServiceProcess } from '../support/service-processes.ts';
import { sendSteadily, summaryOf } from '../support/steady-load.ts';
import { createWorld, type World } from '../support/world.ts';

const requestsPerSecond = 200;
/** 10 before a release: `BALANCER_MINUTES=10`. */
const minutes = Number(process.env.BALANCER_MINUTES ?? 1);

/**
 * A load balancer with its own defaults, except that it keeps connections to the service open.
 */
interface Balancer {
  readonly program: string;
  readonly arguments: (file: string) => string[];
  /** @returns the text of its configuration file */
  readonly configure: (port: number, service: number, folder: string) => string;
}

const balancers: Record<string, Balancer> = {
  nginx: {
    program: 'nginx',
    arguments: file => ['-c', file],
    configure: (port, service, folder) =>
      nginxConfig({
        folder,
        services: [`127.0.0.1:${service}`],
        server: `listen 127.0.0.1:${port};`,
      }),
  },
  HAProxy: {
    program: 'haproxy',
    arguments: file => ['-db', '-f', file],
    configure: (port, service) => `
defaults
  mode http
  timeout connect 5s
  timeout client 50s
  timeout server 50s
frontend api
  bind 127.0.0.1:${port}
  default_backend service
backend service
  server s 127.0.0.1:${service}
`,
  },
  Caddy: {
    program: 'caddy',
    arguments: file => ['run', '--adapter', 'caddyfile', '--config', file],
    configure: (port, service) => `
{
  admin off
  auto_https off
}
http://127.0.0.1:${port} {
  reverse_proxy 127.0.0.1:${service}
}
`,
  },
};

describe('drill: load balancers with connections that stay open', () => {
  let world: World;
  let folder: string;
  const processes = createServiceProcesses();
  let service: ServiceProcess;
  const children: ChildProcess[] = [];

  before(async () => {
    world = await createWorld();
    folder = await mkdtemp(join(tmpdir(), 'backoffice-drill-'));
    service = await processes.start(world.environment);
  });
  after(async () => {
    for (const child of children) child.kill('SIGKILL');
    await processes.killAll();
    await world?.close();
    if (folder) await rm(folder, { recursive: true, force: true });
  });

  /** @returns the address of the balancer; undefined when its program is not installed */
  async function start(
    name: string,
    { program, arguments: args, configure }: Balancer,
  ): Promise<string | undefined> {
    if (spawnSync('which', [program]).status !== 0) {
      console.log(`${name} is not installed, and left out`);
      return undefined;
    }
    const port = await freePort();
    const file = join(folder, `${program}.conf`);
    await writeFile(file, configure(port, service.port, folder));
    children.push(
      spawn(program, args(file), { stdio: 'ignore', env: { ...process.env, HOME: folder } }),
    );
    const url = `http://127.0.0.1:${port}`;
    await eventually(
      async () => (await fetch(`${url}/docs`).catch(() => undefined))?.status === 200,
      30_000,
    );
    return url;
  }

  it('nginx, HAProxy and Caddy pass on every request, and none meets a connection that the service closes', async function () {
    this.timeout(minutes * 60_000 + 120_000);

    const urls: [string, string][] = [];
    for (const [name, balancer] of Object.entries(balancers)) {
      const url = await start(name, balancer);
      if (url) urls.push([name, url]);
    }
    expect(urls).to.not.be.empty;

    const until = sleep(minutes * 60_000);
    const failures = await Promise.all(
      urls.map(async ([name, url]) => {
        const admin = (await world.login(world.acme)).at(url);
        const path = '/api/v1/EntityStatus';

        const served = await sendSteadily(requestsPerSecond, until, async number => {
          if (number % 20 !== 0) return statusOf(await admin.get(path));
          const { status, body } = await admin.post(path, { Title: `${name} ${number}` });
          return status === 201
            ? statusOf(await admin.delete(`${path}/${body.Id}`))
            : `POST ${status}`;
        });

        console.log(name, JSON.stringify(summaryOf(served)));
        return served.flatMap(({ status }) =>
          typeof status === 'string' ? [`${name}: ${status}`] : [],
        );
      }),
    );

    expect(failures.flat()).to.deep.equal([]);
  });
});

function statusOf({ status }: { status: number }): number | string {
  return status < 300 ? status : `status ${status}`;
}
