import { type Agent, type IncomingHttpHeaders, request } from 'node:http';
import { type RunningScript, startScript } from '../../support/command-line.ts';
import { eventually } from '../../support/eventually.ts';
import { freePort } from '../../support/free-port.ts';
import { redisInstalled, startRedis, type TestRedis } from '../../support/redis.ts';
import { startMs } from '../../support/starts.ts';
import { use } from '../../support/use.ts';
import type { World } from '../../support/world.ts';

const statuses = '/api/v1/EntityStatus';
/**
 * The environment of workers whose limits depend on no clock, see patient-workers.ts. Its
 * compiled code is in the cache of require-node.js.
 */
const patientWorkers = {
  NODE_OPTIONS: [
    new URL('../../../src/lib/runtime/require-node.js', import.meta.url),
    new URL('../../support/patient-workers.ts', import.meta.url),
  ]
    .map(url => `--import=${url.href}`)
    .join(' '),
};

/** A service with worker processes: two, if its settings do not say otherwise. */
export interface StartedWorkers extends RunningScript {
  readonly url: string;
  readonly ports: { readonly PORT: string; readonly MANAGEMENT_PORT: string };
  /** The lines of its log. */
  lines(): Record<string, unknown>[];
  /** Returns how many lines of its log have this event. */
  countOf(event: string): number;
  isReady(): Promise<boolean>;
  /** Returns the value of each metric, by its name and labels. */
  readMetrics(): Promise<Map<string, number>>;
  /** All workers that have served, oldest first. */
  workerPids(): number[];
  /** The workers that have answered requests. */
  requestPids(): Set<number>;
}

export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
}

/**
 * Starts one with a Redis of its own before the tests of a `describe`, and kills both after
 * them. Skips the tests where Redis is not installed.
 */
export function useWorkers(
  world: World,
  settings: Record<string, string>,
): StartedWorkers & { readonly redis: TestRedis } {
  before(function skipWithoutRedis() {
    if (redisInstalled) return;
    console.log('redis-server is not installed: the tests of worker processes are skipped');
    this.skip();
  });

  return use(async () => {
    const redis = await startRedis();
    const service = await startWorkers(world, { REDIS_URL: redis.url, ...settings });
    const close = async (): Promise<void> => {
      service.process.kill('SIGKILL');
      await service.ended;
      await redis.close();
    };
    return { ...service, redis, close };
  });
}

/** Starts a service with patient workers. Resolves when it listens, or has ended. */
export async function startWorkers(
  world: World,
  settings: Record<string, string>,
): Promise<StartedWorkers> {
  const ports = { PORT: String(await freePort()), MANAGEMENT_PORT: String(await freePort()) };
  const environment = {
    ...world.environment,
    PROCESSES: '2',
    SHUTDOWN_DELAY: '0s',
    LOG_LEVEL: 'info',
  };

  const running = startScript('src/main.ts', [], {
    ...environment,
    ...patientWorkers,
    ...ports,
    ...settings,
  });

  const lines = (): Record<string, unknown>[] =>
    running.output.stdout
      .split('\n')
      .slice(0, -1) // what follows the last line feed is not yet a whole line
      .map(line => JSON.parse(line));
  const isStarted = (): boolean =>
    running.output.stdout.includes('"listening"') || running.process.exitCode !== null;

  try {
    await eventually(isStarted, Number(settings.PROCESSES ?? 2) * startMs);
  } catch (error) {
    running.process.kill('SIGKILL');
    throw error;
  }

  const managementUrl = `http://127.0.0.1:${ports.MANAGEMENT_PORT}`;
  return {
    ...running,
    url: `http://127.0.0.1:${ports.PORT}`,
    ports,
    lines,
    countOf: event => lines().filter(line => line.event === event).length,
    isReady: async () =>
      (await fetch(`${managementUrl}/health/ready`).catch(() => undefined))?.status === 200,
    readMetrics: async () => {
      const text = await (await fetch(`${managementUrl}/metrics`)).text();
      const found = text.matchAll(/^(\w+(?:\{.*\})?) (\S+)$/gm);
      return new Map([...found].map(([, name = '', value]) => [name, Number(value)]));
    },
    workerPids: () =>
      lines().flatMap(({ event, worker }) => (event === 'worker_started' ? [Number(worker)] : [])),
    requestPids: () =>
      new Set(lines().flatMap(({ pid, traceId }) => (traceId ? [Number(pid)] : []))),
  };
}

/**
 * Reads a list.
 * @param agent by default, each request has a connection of its own
 */
export function getStatuses(
  url: string,
  headers: Record<string, string> = {},
  agent?: Agent,
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    request(`${url}${statuses}`, { agent: agent ?? false, headers }, response => {
      response.resume();
      response.once('end', () =>
        resolve({ status: response.statusCode ?? 0, headers: response.headers }),
      );
    })
      .on('error', reject)
      .end();
  });
}
