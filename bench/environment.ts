import { availableParallelism, cpus, loadavg } from 'node:os';
import { withConnection } from '../src/postgres/connection.ts';
import { loadMaker } from './load.ts';
import type { Options } from './options.ts';
import { postgresSettings, type Stage } from './stage.ts';
import { serviceSettings } from './targets.ts';

/** Under what the figures were made; one sentence each. */
export async function describeEnvironment({ serverUrl, redis }: Stage, options: Options): Promise<string[]> {
  const { rounds, seconds, tenants } = options;
  const postgres = await withConnection(serverUrl, async client => {
    const { rows } = await client.query<{ server_version: string }>('show server_version');
    return rows[0]?.server_version ?? 'unknown';
  });
  const settings = Object.entries(serviceSettings).map(([name, value]) => `${name}=${value}`);
  const args = process.argv.slice(2);
  const command = ['npm run -s bench', ...(args.length > 0 ? ['--', ...args] : [])].join(' ');
  return [
    `${new Date().toISOString().slice(0, 16).replace('T', ' ')} UTC, \`${command}\``,
    `${process.platform} ${process.arch}, ${availableParallelism()} cores (${cpus()[0]?.model ?? 'unknown'}), shared by everything here`,
    `Node ${process.versions.node}, PostgreSQL ${postgres} (${postgresSettings.join(', ')}), ${redis ? 'Redis' : 'no Redis: requests are counted in memory'}`,
    `${rounds} rounds of ${seconds} s, ${tenants} tenants, load by ${loadMaker}; load average when it began, the bench's own preparation included: ${loadavg()[0]?.toFixed(1)}`,
    `service: ${settings.join(', ')}${redis ? ', REDIS_URL' : ''}; everything else as by default unless a work says so`,
  ];
}
