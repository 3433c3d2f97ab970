import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { freePort } from '../test/support/free-port.ts';
import type { Child, Children } from './children.ts';
import type { Testbed } from './testbed.ts';

/** A running server that the load generator sends requests to. */
export interface Target {
  readonly name: string;
  readonly url: string;
  readonly child: Child;
  /** Returns the path for a tenant index. Only bare-pool has the tenant in its path. */
  path(tenant: number, path: string): string;
  stop(): Promise<void>;
}

const root = fileURLToPath(new URL('../', import.meta.url));
const inBench = (file: string): string => fileURLToPath(new URL(file, import.meta.url));

// every server runs with the same V8 flags
const v8Flags = join(root, 'src/lib/runtime/v8-flags.ts');

const readyMs = 60_000;

/**
 * Settings of the service that differ from its defaults: rate limits that a bench does not
 * reach, and a quiet log. Calls are counted ahead for a fortieth of the window of the limit of
 * all requests: 125 ms, longer than a busy machine lets a process wait.
 */
export const serviceSettings = {
  LOG_LEVEL: 'warn',
  RATE_LIMIT_GLOBAL: '1000000/5s',
  RATE_LIMIT_LOGIN: '1000000/1s',
};

interface ServerOptions {
  budget?: number;
  /** Loads memory-probe.ts. */
  probe?: boolean;
  /** Further settings. */
  environment?: Record<string, string>;
}

/** Starts the service on a testbed, and waits until it is ready. */
export async function startServer(
  testbed: Testbed,
  { budget, probe = false, environment = {} }: ServerOptions = {},
): Promise<Target> {
  const settings = {
    DATABASE_URL: testbed.controlUrl,
    MASTER_KEY: testbed.masterKey,
    DATA_DIR: join(testbed.folder, 'service'),
    ...(testbed.redis ? { REDIS_URL: testbed.redis.url } : {}),
    ...(budget === undefined ? {} : { CONNECTION_BUDGET: String(budget) }),
    ...environment,
  };
  const { port, child } = await startService(testbed.children, 'service', settings, probe);
  return target('service', port, child);
}

/**
 * Starts the service with these settings, and waits until it is ready.
 * @param probe loads memory-probe.ts
 */
async function startService(
  children: Children,
  name: string,
  settings: Record<string, string>,
  probe = false,
): Promise<{ port: number; child: Child }> {
  const flags = probe ? ['--expose-gc', '--import', inBench('memory-probe.ts')] : [];
  const args = ['--import', v8Flags, ...flags, join(root, 'src/main.ts')];

  return startReady(children, name, { command: process.execPath, args, ipc: probe }, settings);
}

/** The command with which a service is started. */
interface Launch {
  readonly command: string;
  readonly args: string[];
  /** The working directory of the target; undefined: that of the bench. */
  readonly folder?: string;
  /** With a channel for messages. */
  readonly ipc?: boolean;
}

/**
 * Starts a service on free ports, with the settings of all services of a bench and these, and
 * waits until it is ready.
 * @throws {Error} with its output if it ends before, or is not ready after 60 s
 */
export async function startReady(
  children: Children,
  name: string,
  { command, args, ...options }: Launch,
  settings: Record<string, string>,
): Promise<{ port: number; child: Child }> {
  const port = await freePort();
  const managementPort = await freePort();
  const ports = { PORT: String(port), MANAGEMENT_PORT: String(managementPort) };

  const child = children.start(
    name,
    command,
    args,
    { ...serviceSettings, ...settings, ...ports },
    options,
  );

  const ready = async (): Promise<boolean> =>
    fetch(`http://127.0.0.1:${managementPort}/health/ready`).then(
      response => response.ok,
      () => false,
    );

  const deadline = Date.now() + readyMs;
  while (!(await ready())) {
    if (Date.now() > deadline || child.process.exitCode !== null) {
      throw new Error(`${name} did not become ready: ${child.recentOutput()}`);
    }
    await delay(50);
  }

  return { port, child };
}

/** Starts servers, passes them to `work`, and stops them also when something fails. */
export async function withTargets<Targets extends (() => Promise<Target>)[], Result>(
  starts: [...Targets],
  work: (...targets: { [Index in keyof Targets]: Target }) => Promise<Result>,
): Promise<Result> {
  const started: Target[] = [];
  try {
    for (const start of starts) started.push(await start());
    return await work(...(started as { [Index in keyof Targets]: Target }));
  } finally {
    await Promise.all(started.map(target => target.stop()));
  }
}

export function startRawPg(testbed: Testbed): Promise<Target> {
  return startOther(testbed, 'raw-pg', 'raw-pg.ts', { BASELINE_URL: testbed.rawPgUrl });
}

export function startAuditedPg(testbed: Testbed): Promise<Target> {
  return startOther(testbed, 'raw-pg-audited', 'raw-pg.ts', {
    BASELINE_URL: testbed.auditedUrl,
    AUDITED: '1',
  });
}

export function startCollector(testbed: Testbed): Promise<Target> {
  return startOther(testbed, 'collector', 'collector.ts', {});
}

/**
 * Returns functions that start raw-pg (once) and the two servers that fetch the bodies they
 * send from it.
 */
export function baselineStarters(
  testbed: Testbed,
): Record<'rawPg' | 'bareHttp' | 'bareKoa', () => Promise<Target>> {
  let started: Promise<Target> | undefined;
  const rawPg = (): Promise<Target> => (started ??= startRawPg(testbed));
  const sender = (name: string) => async (): Promise<Target> =>
    startOther(testbed, name, `${name}.ts`, { ORIGIN: (await rawPg()).url });
  return { rawPg, bareHttp: sender('bare-http'), bareKoa: sender('bare-koa') };
}

export function startFastify(testbed: Testbed): Promise<Target> {
  const redis = testbed.redis ? { REDIS_URL: testbed.redis.url } : {};
  return startOther(testbed, 'fastify', 'fastify-reference/server.js', {
    BASELINE_URL: testbed.fastifyUrl,
    NODE_ENV: 'production',
    ...redis,
  });
}

export async function startBarePool(testbed: Testbed, budget: number): Promise<Target> {
  const file = join(testbed.folder, 'databases');
  await writeFile(file, testbed.tenants.map(tenant => `${tenant.url}\n`).join(''), { mode: 0o600 });
  const barePool = await startOther(testbed, 'bare-pool', 'bare-pool.ts', {
    DATABASES: file,
    BUDGET: String(budget),
  });
  return { ...barePool, path: (tenant, path) => `/${tenant}${path}` };
}

/** Starts a server that the service is compared with, and waits until it listens. */
async function startOther(
  testbed: Testbed,
  name: string,
  file: string,
  environment: Record<string, string>,
): Promise<Target> {
  const child = testbed.children.start(
    name,
    process.execPath,
    ['--import', v8Flags, inBench(file)],
    environment,
  );
  const [, port] = await child.waitForOutput(/^listening (\d+)$/m);
  return target(name, Number(port), child);
}

function target(name: string, port: number, child: Child): Target {
  return {
    name,
    url: `http://127.0.0.1:${port}`,
    child,
    path: (_, path) => path,
    stop: child.stop,
  };
}
