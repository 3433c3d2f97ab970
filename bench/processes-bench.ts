import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { createPasswords } from '../src/auth/passwords.ts';
import { checkManifest } from '../src/operator/provisioning/manifest.ts';
import { provision } from '../src/operator/provisioning/provision.ts';
import { freePort } from '../test/support/free-port.ts';
import { openBenchInstallation } from './bench-installation.ts';
import { call } from './call.ts';
import { Children } from './children.ts';
import { startLoad } from './load.ts';
import type { Plan } from './plan.ts';
import { readScriptOptions } from './script-options.ts';
import { spread } from './spread.ts';
import { serviceSettings } from './targets.ts';
import { loginRequest } from './tokens.ts';
import { cpuOfFamily } from './usage.ts';

/**
 * Compares the service with several worker processes with one process: reads of a cached list on connections that stay
 * open, by one client and by many (each of which has a rate limit of its own). Without Redis, so that workers count in
 * the primary process. All processes, wrk included, share the cores.
 */
const usage = {
  command: 'bench:processes',
  text: 'Compares PROCESSES=n with one process: cached reads, without Redis.',
};
const options = readScriptOptions(usage, { processes: 2, rounds: 5, seconds: 4, connections: 32, clients: 200 });
const readyMs = 60_000;
const warmUpRequests = 60_000; // of each process that serves

interface Service {
  readonly processes: number;
  readonly url: string;
  readonly pid: number;
}

interface Measured {
  readonly perSecond: number;
  /** Of all processes of the service, in µs per request. */
  readonly cpu: number;
  readonly p99: number;
}

const opened = await openBenchInstallation();
const children = new Children();
try {
  await bench();
} finally {
  await children.stop();
  await opened.close();
}

async function bench(): Promise<void> {
  const manifest = checkManifest({ slug: 'bench', name: 'Bench', admin: { email: 'admin@bench.test' } }, 'bench');
  const { tenant, logins } = await provision(opened.installation, createPasswords(), manifest);
  const [admin] = logins;
  if (!admin) throw new Error('the tenant has no administrator');
  await opened.disconnect();
  const services = [await startService(1), await startService(options.processes)];
  const login = await call(services[0]?.url ?? '', loginRequest(admin, tenant.guid));
  const token: string = JSON.parse(login.body).accessToken;

  for (const service of services) {
    console.log(`warming up PROCESSES=${service.processes}`);
    await warmUp(service, planOf(token, options.clients));
  }
  for (const clients of [1, options.clients]) {
    const plan = planOf(token, clients);
    const results: Measured[][] = services.map(() => []);
    for (let round = 0; round < options.rounds; round++)
      for (const [index, service] of services.entries()) results[index]?.push(await measure(service, plan));
    report(`${clients} client${clients === 1 ? '' : 's'}`, results);
  }
}

async function startService(processes: number): Promise<Service> {
  const [port, managementPort] = [await freePort(), await freePort()];
  const root = fileURLToPath(new URL('../', import.meta.url));
  const args = ['--import', join(root, 'src/v8-flags.ts'), join(root, 'src/main.ts')];
  const child = children.start(`PROCESSES=${processes}`, process.execPath, args, {
    ...serviceSettings,
    RATE_LIMIT_GLOBAL: '1000000/60s', // workers lease calls as with the default, whose period is as long
    DATABASE_URL: opened.controlUrl,
    MASTER_KEY: opened.masterKey,
    PROCESSES: String(processes),
    PORT: String(port),
    MANAGEMENT_PORT: String(managementPort),
    TRUSTED_PROXIES: '127.0.0.1',
  });
  const url = `http://127.0.0.1:${port}`;
  const deadline = Date.now() + readyMs;
  while (!(await responds(`http://127.0.0.1:${managementPort}/health/ready`))) {
    if (Date.now() > deadline || child.process.exitCode !== null)
      throw new Error(`${child.name} did not become ready: ${child.recentOutput()}`);
    await delay(100);
  }
  return { processes, url, pid: child.pid };
}

function responds(url: string): Promise<boolean> {
  return fetch(url).then(
    ({ ok }) => ok,
    () => false,
  );
}

function planOf(token: string, clients: number): Plan {
  const requests = Array.from({ length: clients }, (_, index) => ({
    method: 'GET' as const,
    path: '/api/v1/EntityStatus',
    headers: { Authorization: `Bearer ${token}`, 'X-Forwarded-For': `198.51.${index >> 8}.${index & 255}` },
  }));
  return { requests, connections: options.connections, expect: { status: 200 } };
}

/** V8 compiles a process's code for speed only after tens of thousands of requests: all processes must have them. */
async function warmUp(service: Service, plan: Plan): Promise<void> {
  const wanted = warmUpRequests * service.processes;
  for (let requests = 0; requests < wanted; ) {
    const { perSecond } = await measure(service, plan);
    requests += perSecond * options.seconds;
  }
}

async function measure({ url, pid, processes }: Service, plan: Plan): Promise<Measured> {
  const before = await cpuOfFamily(pid);
  const load = await startLoad(children, opened.folder, url, plan, options.seconds);
  const { requests, seconds, p99, statusErrors, socketErrors } = await load.result;
  const cpu = ((await cpuOfFamily(pid)) - before) * 1_000;
  if (statusErrors + socketErrors > 0)
    throw new Error(`PROCESSES=${processes}: ${statusErrors} error responses, ${socketErrors} failed connections`);
  return { perSecond: requests / seconds, cpu: cpu / requests, p99 };
}

function report(title: string, [one = [], several = []]: Measured[][]): void {
  const ratios = (value: (measured: Measured) => number): number[] =>
    several.map((measured, round) => value(measured) / value(one[round] ?? measured));
  const rounded = (figures: number[]): Record<string, number> =>
    Object.fromEntries(Object.entries(spread(figures)).map(([name, figure]) => [name, Number(figure.toFixed(2))]));
  const name = `PROCESSES=${options.processes}`;
  console.log(`\n${title}, ${options.connections} connections`);
  console.table({
    'PROCESSES=1, requests/s': rounded(one.map(({ perSecond }) => perSecond)),
    [`${name}, requests/s`]: rounded(several.map(({ perSecond }) => perSecond)),
    'requests/s, ratio': rounded(ratios(({ perSecond }) => perSecond)),
    'PROCESSES=1, CPU µs/request': rounded(one.map(({ cpu }) => cpu)),
    [`${name}, CPU µs/request`]: rounded(several.map(({ cpu }) => cpu)),
    'CPU per request, ratio (aim: ≤ 1.1)': rounded(ratios(({ cpu }) => cpu)),
    'PROCESSES=1, p99 ms': rounded(one.map(({ p99 }) => p99)),
    [`${name}, p99 ms`]: rounded(several.map(({ p99 }) => p99)),
  });
}
