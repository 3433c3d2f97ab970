import { createPasswords } from '../src/accounts/auth/passwords.ts';
import { checkManifest } from '../src/operator/lifecycle/manifest.ts';
import { provision } from '../src/operator/lifecycle/provision.ts';
import { openBenchInstallation } from './bench-installation.ts';
import { prepare } from './call.ts';
import { Children } from './children.ts';
import { type LoadResult, startLoad } from './load.ts';
import type { Plan } from './plan.ts';
import { startRedis } from './redis.ts';
import { readScriptOptions } from './script-options.ts';
import { roundedSpread } from './spread.ts';
import { startService } from './targets.ts';
import { loginRequest } from './tokens.ts';
import { cpuOfFamily } from './usage.ts';

/**
 * Compares three ways to run the service: one process, PROCESSES=n, and n separate starts with
 * one process each, which share nothing but the databases and Redis. The load is reads of a
 * cached list on connections that stay open, by one client and by many (each of which has a
 * rate limit of its own). All processes, wrk and Redis included, share the cores.
 *
 * The CPU of a request rises when all cores of a machine work, because they share caches and
 * clock. Separate starts show by how much; what PROCESSES=n needs beyond them is the cost of
 * its workers' work for each other.
 */
const usage = {
  command: 'bench:processes',
  text: 'Compares PROCESSES=n with one process and with n separate starts: cached reads.',
};
const defaults = { processes: 2, rounds: 5, seconds: 4, connections: 32, clients: 200 };
const options = readScriptOptions(usage, defaults);
const warmUpRequests = 60_000; // of each process that serves

/** The starts of one way to run the service. */
interface Service {
  readonly name: string;
  /** The number of processes that serve requests. */
  readonly processes: number;
  readonly starts: readonly { readonly url: string; readonly pid: number }[];
}

interface Measured {
  readonly perSecond: number;
  /**
   * The CPU time of all processes of the service, without Redis and PostgreSQL, in µs per
   * request.
   */
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
  const manifest = checkManifest(
    { slug: 'bench', name: 'Bench', admin: { email: 'admin@bench.test' } },
    'bench',
  );
  const { tenant, logins } = await provision(opened.installation, createPasswords(), manifest);
  const [admin] = logins;
  if (!admin) throw new Error('the tenant has no administrator');
  await opened.disconnect();
  const redis = await startRedis(children, opened.folder);
  if (!redis) throw new Error('redis-server is not installed: several processes need it');

  const settings = { REDIS_URL: redis.url };
  const { processes } = options;
  const services = [
    await startAll('one process', [1], settings),
    await startAll(`PROCESSES=${processes}`, [processes], settings),
    await startAll(`${processes} separate starts`, Array(processes).fill(1), settings),
  ];
  const login = await prepare(services[0]?.starts[0]?.url ?? '', loginRequest(admin, tenant.guid));
  const token: string = JSON.parse(login.body).accessToken;

  for (const service of services) {
    console.log(`warming up: ${service.name}`);
    await warmUp(service, planOf(token, options.clients));
  }
  for (const clients of [1, options.clients]) {
    const plan = planOf(token, clients);
    const results: Measured[][] = services.map(() => []);
    for (let round = 0; round < options.rounds; round++) {
      for (const [index, service] of services.entries()) {
        results[index]?.push(await measure(service, plan));
      }
    }
    report(`${clients} client${clients === 1 ? '' : 's'}`, services, results);
  }
}

async function startAll(
  name: string,
  starts: number[],
  settings: Record<string, string>,
): Promise<Service> {
  const started = [];
  for (const processes of starts) {
    const { port, child } = await startService(children, `PROCESSES=${processes}`, {
      ...settings,
      RATE_LIMIT_GLOBAL: '1000000/1s',
      DATABASE_URL: opened.controlUrl,
      MASTER_KEY: opened.masterKey,
      PROCESSES: String(processes),
      TRUSTED_PROXIES: '127.0.0.1',
    });
    started.push({ url: `http://127.0.0.1:${port}`, pid: child.pid });
  }
  return {
    name,
    processes: starts.reduce((sum, processes) => sum + processes, 0),
    starts: started,
  };
}

function planOf(token: string, clients: number): Plan {
  const requests = Array.from({ length: clients }, (_, index) => ({
    method: 'GET' as const,
    path: '/api/v1/EntityStatus',
    headers: {
      Authorization: `Bearer ${token}`,
      'X-Forwarded-For': `198.51.${index >> 8}.${index & 255}`,
    },
  }));
  return { requests, connections: options.connections, expect: { status: 200 } };
}

/**
 * V8 compiles a process's code for speed only after tens of thousands of requests: all
 * processes must have them.
 */
async function warmUp(service: Service, plan: Plan): Promise<void> {
  const wanted = warmUpRequests * service.processes;
  for (let requests = 0; requests < wanted; ) {
    const { perSecond } = await measure(service, plan);
    requests += perSecond * options.seconds;
  }
}

async function measure({ name, starts }: Service, plan: Plan): Promise<Measured> {
  const cpu = async (): Promise<number> =>
    (await Promise.all(starts.map(({ pid }) => cpuOfFamily(pid)))).reduce((sum, ms) => sum + ms, 0);
  const part: Plan = { ...plan, connections: Math.ceil(plan.connections / starts.length) };

  const before = await cpu();
  const loads = await Promise.all(
    starts.map(({ url }) => startLoad(children, opened.folder, url, part, options.seconds)),
  );
  const results = await Promise.all(loads.map(({ result }) => result));
  const usedMs = (await cpu()) - before;

  const sum = (value: (result: LoadResult) => number): number =>
    results.reduce((total, result) => total + value(result), 0);
  const errors = sum(({ statusErrors, socketErrors }) => statusErrors + socketErrors);
  if (errors > 0) throw new Error(`${name}: ${errors} error responses and failed connections`);

  return {
    perSecond: sum(({ requests, seconds }) => requests / seconds),
    cpu: (usedMs * 1_000) / sum(({ requests }) => requests),
    p99: Math.max(...results.map(({ p99 }) => p99)),
  };
}

function report(title: string, services: Service[], results: Measured[][]): void {
  const rows: Record<string, Record<string, number>> = {};
  const units = { perSecond: 'requests/s', cpu: 'CPU µs/request', p99: 'p99 ms' } as const;

  for (const unit of ['perSecond', 'cpu', 'p99'] as const) {
    for (const [index, { name }] of services.entries()) {
      rows[`${name}, ${units[unit]}`] = roundedSpread(
        (results[index] ?? []).map(measured => measured[unit]),
      );
    }
  }

  const ratio = (several: number, base: number, unit: 'perSecond' | 'cpu'): number[] =>
    (results[several] ?? []).map(
      (measured, round) => measured[unit] / (results[base]?.[round]?.[unit] ?? Number.NaN),
    );

  const name = services[1]?.name ?? '';
  for (const [base, aims] of [
    [0, { perSecond: ' (aim: ≥ 1.3)', cpu: ' (aim: ≤ 1.1)' }],
    [2, { perSecond: '', cpu: '' }],
  ] as const) {
    for (const unit of ['perSecond', 'cpu'] as const) {
      rows[`${name} / ${services[base]?.name}: ${units[unit]}${aims[unit]}`] = roundedSpread(
        ratio(1, base, unit),
      );
    }
  }

  console.log(`\n${title}, ${options.connections} connections`);
  console.table(rows);
}
