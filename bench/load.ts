import { spawnSync } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Child, Children } from './children.ts';
import type { Plan } from './plan.ts';

/**
 * Result of the load generator. Latencies in ms, of a closed loop: at saturation unless the
 * plan pauses.
 */
export interface LoadResult {
  readonly requests: number;
  readonly seconds: number;
  readonly p50: number;
  readonly p99: number;
  /** Responses with a status of 400 and above. */
  readonly statusErrors: number;
  /** Connections that were refused, reset or timed out. */
  readonly socketErrors: number;
}

export interface Load {
  readonly result: Promise<LoadResult>;
}

export const hasWrk = !spawnSync('wrk', ['-v']).error;
export const loadGenerator = hasWrk
  ? 'wrk -t1'
  : 'autocannon (wrk is not in PATH: latencies are in whole ms)';
const paths = ['load.lua', 'fastify-reference/load.js'].map(name =>
  fileURLToPath(new URL(name, import.meta.url)),
);
let planCount = 0;

/** Sends a plan to a server for so many seconds, in a separate process. */
export async function startLoad(
  children: Children,
  folder: string,
  url: string,
  plan: Plan,
  seconds: number,
): Promise<Load> {
  const file = join(folder, `plan-${++planCount}`);
  const lines = plan.requests.map(({ method, path, headers, body = '' }) =>
    [
      method,
      path,
      body,
      ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
    ].join('\t'),
  );
  await writeFile(file, `${lines.join('\n')}\n`, { mode: 0o600 });
  await writeFile(`${file}.order`, `${(plan.order ?? [...plan.requests.keys()]).join('\n')}\n`);

  const child = launch(children, url, plan, seconds, file);
  const result = child.ended.then((code): LoadResult => {
    const found = /^\{.*\}$/m.exec(child.recentOutput());
    if (code !== 0 || !found) throw new Error(`the load generator failed: ${child.recentOutput()}`);
    return JSON.parse(found[0]);
  });
  result.catch(() => {}); // the caller that awaits it gets the error

  return { result };
}

function launch(children: Children, url: string, plan: Plan, seconds: number, file: string): Child {
  const { connections, pauseMs = 0 } = plan;
  const [lua = '', script = ''] = paths;
  const rest = [file, String(pauseMs), `${file}.order`];

  if (hasWrk) {
    const options = [
      '-t1',
      `-c${connections}`,
      `-d${seconds}s`,
      '--timeout',
      '10s',
      '-s',
      lua,
      url,
    ];
    return children.start('wrk', 'wrk', [...options, '--', ...rest]);
  }

  return children.start('autocannon', process.execPath, [
    script,
    url,
    String(connections),
    String(seconds),
    ...rest,
  ]);
}
