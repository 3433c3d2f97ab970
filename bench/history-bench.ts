import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { pino } from 'pino';
import { createPasswords } from '../src/auth/passwords.ts';
import { readConfig } from '../src/config.ts';
import { databaseUrl } from '../src/control/server-urls.ts';
import { checkManifest } from '../src/operator/provisioning/manifest.ts';
import { provision } from '../src/operator/provisioning/provision.ts';
import { addUser, generatePassword } from '../src/operator/tenants/users.ts';
import { withConnection } from '../src/postgres/connection.ts';
import { type RunningServer, startServer } from '../src/server.ts';
import { openBenchInstallation } from './bench-installation.ts';
import { addActivities, fillActivities, tableFacts } from './history-rows.ts';
import { readScriptOptions } from './script-options.ts';

/**
 * Measures the lists of activities of one tenant over HTTP, one request after the other: with all rows, while the
 * oldest fifth is removed by `retention apply`, after that, and when as many new rows have taken the free space.
 */
const usage = { command: 'bench:history', text: 'Measures lists of activities before, during and after a removal.' };
const { rows, requests } = readScriptOptions(usage, { rows: 10_000_000, requests: 500 });
/** Years over which the activities are spread, and how many of them are kept. */
const [years, kept] = [5, 4];
const root = fileURLToPath(new URL('..', import.meta.url));

const opened = await openBenchInstallation(['shared_buffers=1GB', 'max_wal_size=8GB', 'maintenance_work_mem=512MB']);
let service: RunningServer | undefined;
try {
  await bench();
} finally {
  await service?.stop();
  await opened.close();
}

async function bench(): Promise<void> {
  const { installation, serverUrl, controlUrl, masterKey, folder } = opened;
  const passwords = createPasswords(undefined, { memoryCost: 8, timeCost: 1 });
  const manifest = checkManifest({ slug: 'acme', name: 'Acme', admin: { email: 'a@bench.test' } }, 'acme');
  const { tenant, logins } = await provision(installation, passwords, manifest);
  const self = { email: 'self@bench.test', password: generatePassword() };
  await installation.statements.execute(
    `insert into roles (tenant_id, name, permissions) values (?, 'reader', '{full.read}')`,
    [tenant.id],
  );
  const url = databaseUrl(serverUrl, tenant.databaseName);
  await withConnection(url, client =>
    client.query(`insert into entities (id, name, entity_type) values (7, 'Entity', 'customer')`),
  );
  const person = { ...self, firstName: 'S', lastName: 'S', role: 'reader', scope: 'Self' as const, entityId: 7 };
  await addUser(installation, passwords, { tenant, ...person });
  const log = (text: string): void => console.log(`${new Date().toISOString().slice(11, 19)} ${text}`);

  log(`filling ${rows} activities`);
  await withConnection(url, client => fillActivities(client, rows, years));
  log(await withConnection(url, tableFacts));

  const settings = {
    ...{ DATABASE_URL: controlUrl, MASTER_KEY: masterKey, PORT: '0', MANAGEMENT_PORT: '0' },
    ...{ RATE_LIMIT_GLOBAL: '1000000/60s', PUBLIC_URL: 'http://bench.test', BACKUP_TARGET: join(folder, 'archives') },
  };
  const config = readConfig(settings);
  service = await startServer({ config, installation, log: pino({ level: 'silent' }), passwords });
  const origin = `http://127.0.0.1:${service.port}`;
  const login = async (body: object): Promise<string> => {
    const headers = { 'X-Tenant': tenant.guid, 'Content-Type': 'application/json' };
    const response = await fetch(`${origin}/api/v1/auth/login`, {
      method: 'POST',
      headers,
      body: JSON.stringify(body),
    });
    return ((await response.json()) as { accessToken: string }).accessToken;
  };
  const [{ email, password } = self] = logins;
  let [admin, own] = ['', ''];
  const list = '/api/v1/Activity?limit=20';
  const requestsOf: Record<string, { token: () => string; path: (number: number) => string }> = {
    'one by its id': { token: () => admin, path: number => `/api/v1/Activity/${rows - number}` },
    'newest 20': { token: () => admin, path: () => list },
    'of a user': { token: () => admin, path: number => `${list}&userId=${1 + (number % 200)}` },
    'of an entity': { token: () => admin, path: number => `${list}&entityId=${1 + ((number * 97) % 50_000)}` },
    'of a user and an entity': {
      token: () => admin,
      path: number => `${list}&userId=${1 + (number % 200)}&entityId=${number + 1}`,
    },
    'scope Self': { token: () => own, path: () => list },
    'oldest 20': { token: () => admin, path: () => `${list}&sort=CreatedAt` },
  };
  const measure = async (name: string, count: number, isDone: () => boolean = () => true): Promise<void> => {
    [admin, own] = [await login({ email, password }), await login(self)]; // a token expires after 15 minutes
    const times = new Map(Object.keys(requestsOf).map(kind => [kind, [] as number[]]));
    do {
      for (const [kind, { token, path }] of Object.entries(requestsOf)) {
        for (let number = 0; number < count; number++) {
          const startedAt = performance.now();
          const headers = { Authorization: `Bearer ${token()}`, 'Cache-Control': 'no-cache' };
          const response = await fetch(origin + path(number), { headers });
          await response.arrayBuffer();
          if (response.status !== 200) throw new Error(`${path(number)}: ${response.status}`);
          times.get(kind)?.push(performance.now() - startedAt);
        }
      }
    } while (!isDone());
    log(`${name}, ms`);
    console.table(Object.fromEntries([...times].map(([kind, all]) => [kind, percentiles(all)])));
  };
  const tenantCommand = async (...args: string[]): Promise<void> => {
    const flags = ['require-node.js', 'v8-flags.ts'].flatMap(file => ['--import', join(root, 'src', file)]);
    const command = [...flags, 'scripts/tenant.ts', ...args];
    const env = { PATH: process.env.PATH, ...settings };
    const child = spawn(process.execPath, command, { cwd: root, env, stdio: ['ignore', 'inherit', 'inherit'] });
    const [code] = await once(child, 'exit');
    if (code !== 0) throw new Error(`${args.join(' ')} ended with ${code}`);
  };

  await measure('warm-up', 20);
  await measure('all rows', requests);
  await tenantCommand('backup', 'run', 'acme');
  await tenantCommand('retention', 'acme', '--activity', `${kept}y`);
  log('retention apply');
  let isApplied = false;
  const applied = tenantCommand('retention', 'apply', '--all').finally(() => {
    isApplied = true;
  });
  await measure('during the removal', 20, () => isApplied);
  await applied;
  log(await withConnection(url, tableFacts));
  await measure('after the removal', requests);
  await withConnection(url, client => addActivities(client, Math.round((rows * (years - kept)) / years)));
  log(`${await withConnection(url, tableFacts)} after as many new rows`);
  await measure('with new rows in the free space', requests);
}

function percentiles(times: number[]): object {
  times.sort((a, b) => a - b);
  const at = (share: number): string => (times[Math.floor((times.length - 1) * share)] ?? 0).toFixed(1);
  return { p50: at(0.5), p99: at(0.99), max: at(1) };
}
