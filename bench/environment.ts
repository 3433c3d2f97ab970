import { availableParallelism, cpus, loadavg } from 'node:os';
import { withConnection } from '../src/lib/postgres/connection.ts';
import { presentName } from './build.ts';
import { loadGenerator } from './load.ts';
import type { Options } from './options.ts';
import { serviceSettings } from './targets.ts';
import type { Testbed } from './testbed.ts';

/**
 * Describes the conditions of the run: time, commit, machine, versions, settings; one sentence
 * each.
 */
export async function describeEnvironment(
  { serverUrl, postgresSettings, redis }: Testbed,
  options: Pick<Options, 'rounds' | 'seconds' | 'tenants'>,
): Promise<string[]> {
  const { rounds, seconds, tenants } = options;
  const postgres = await withConnection(serverUrl, async client => {
    const { rows } = await client.query<{ server_version: string }>('show server_version');
    return rows[0]?.server_version ?? 'unknown';
  });

  const cpu = `${availableParallelism()} cores (${cpus()[0]?.model ?? 'unknown'})`;
  const redisText = redis ? 'Redis' : 'no Redis: rate limits are counted in memory';
  const load = loadavg()[0]?.toFixed(1);

  const settings = Object.entries(serviceSettings).map(([name, value]) => `${name}=${value}`);
  if (redis) settings.push('REDIS_URL');

  const args = process.argv.slice(2);
  const script = process.env.npm_lifecycle_event ?? 'bench';
  const command = [`npm run -s ${script}`, ...(args.length > 0 ? ['--', ...args] : [])].join(' ');

  const build = await presentName();

  return [
    `${new Date().toISOString().slice(0, 16).replace('T', ' ')} UTC, ${build}, \`${command}\``,
    `${process.platform} ${process.arch}, ${cpu}, shared by all processes of the bench`,
    `Node ${process.versions.node}, PostgreSQL ${postgres} (${postgresSettings.join(', ')}), ${redisText}`,
    `${rounds} rounds of ${seconds} s, ${tenants} tenants, load by ${loadGenerator}; load average after preparation: ${load}`,
    `service: ${settings.join(', ')}; all other settings are defaults unless a workload says otherwise`,
  ];
}
