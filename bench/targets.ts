import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { Child } from './children.ts';
import { freePort, type Stage } from './stage.ts';

/** A server that answers the bench's requests. */
export interface Target {
  readonly name: string;
  readonly url: string;
  readonly child: Child;
  /** Where the path is for the tenant of that number: baselines have one tenant, the governor has them in the path. */
  path(tenant: number, path: string): string;
  stop(): Promise<void>;
}

const root = fileURLToPath(new URL('../', import.meta.url));
const inBench = (file: string): string => fileURLToPath(new URL(file, import.meta.url));

const engine = join(root, 'src/v8-flags.ts'); // the same settings for all

/** The issuer of tokens: the same for every process, so that a token outlives a restart. */
const publicUrl = 'http://backoffice.bench';
const readyMs = 60_000;

/** The service as operators run it, but for the limits that a bench must not meet. */
export const serviceSettings = {
  LOG_LEVEL: 'warn',
  RATE_LIMIT_GLOBAL: '1000000/1s',
  RATE_LIMIT_LOGIN: '1000000/1s',
};

export async function startServer(
  stage: Stage,
  { budget, probe = false }: { budget?: number; probe?: boolean } = {},
): Promise<Target> {
  const [port, managementPort] = [await freePort(), await freePort()];
  const flags = probe ? ['--expose-gc', '--import', inBench('memory-probe.ts')] : [];
  const args = ['--import', engine, ...flags, join(root, 'src/main.ts')];
  const child = stage.children.start(
    'service',
    process.execPath,
    args,
    {
      ...serviceSettings,
      DATABASE_URL: stage.controlUrl,
      MASTER_KEY: stage.masterKey,
      DATA_DIR: join(stage.folder, 'service'),
      PUBLIC_URL: publicUrl,
      PORT: String(port),
      MANAGEMENT_PORT: String(managementPort),
      ...(stage.redis ? { REDIS_URL: stage.redis.url } : {}),
      ...(budget === undefined ? {} : { CONNECTION_BUDGET: String(budget) }),
    },
    probe,
  );
  const ready = async (): Promise<boolean> =>
    fetch(`http://127.0.0.1:${managementPort}/health/ready`).then(
      answer => answer.ok,
      () => false,
    );
  const deadline = Date.now() + readyMs;
  while (!(await ready())) {
    if (Date.now() > deadline || child.process.exitCode !== null)
      throw new Error(`the service does not start: ${child.tail()}`);
    await delay(50);
  }
  return target('service', port, child);
}

export function startLimit(stage: Stage): Promise<Target> {
  return startBaseline(stage, 'limit', 'raw-pg.ts', { BASELINE_URL: stage.limitUrl });
}

/** Ways to start the limit, and those who get from it what they send: the ceiling and bare Koa. */
export function limitAndCeilings(stage: Stage): [() => Promise<Target>, () => Promise<Target>, () => Promise<Target>] {
  let started: Promise<Target> | undefined;
  const limit = (): Promise<Target> => (started ??= startLimit(stage));
  const sender = (name: string, file: string) => async (): Promise<Target> =>
    startBaseline(stage, name, file, { ORIGIN: (await limit()).url });
  return [limit, sender('ceiling', 'bare-http.ts'), sender('koa', 'bare-koa.ts')];
}

export function startPeer(stage: Stage): Promise<Target> {
  const redis = stage.redis ? { REDIS_URL: stage.redis.url } : {};
  return startBaseline(stage, 'peer', 'fastify-reference/server.js', {
    BASELINE_URL: stage.peerUrl,
    NODE_ENV: 'production',
    ...redis,
  });
}

export async function startGovernor(stage: Stage, budget: number): Promise<Target> {
  const file = join(stage.folder, 'databases');
  await writeFile(file, stage.tenants.map(tenant => `${tenant.url}\n`).join(''), { mode: 0o600 });
  const governor = await startBaseline(stage, 'governor', 'bare-pool.ts', {
    DATABASES: file,
    BUDGET: String(budget),
  });
  return { ...governor, path: (tenant, path) => `/${tenant}${path}` };
}

async function startBaseline(
  stage: Stage,
  name: string,
  file: string,
  environment: Record<string, string>,
): Promise<Target> {
  const child = stage.children.start(name, process.execPath, ['--import', engine, inBench(file)], environment);
  const [, port] = await child.wrote(/^listening (\d+)$/m);
  return target(name, Number(port), child);
}

function target(name: string, port: number, child: Child): Target {
  return { name, url: `http://127.0.0.1:${port}`, child, path: (_, path) => path, stop: child.stop };
}
