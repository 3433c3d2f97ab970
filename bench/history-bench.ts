import type pg from 'pg';
import { pino } from 'pino';
import { createPasswords } from '../src/accounts/auth/passwords.ts';
import type { Tenant } from '../src/control/control-entities.ts';
import { databaseUrl } from '../src/control/server-urls.ts';
import { readConfig } from '../src/lib/config/config.ts';
import { withConnection } from '../src/lib/postgres/connection.ts';
import { addUser, generatePassword } from '../src/operator/credentials/users.ts';
import { checkManifest } from '../src/operator/lifecycle/manifest.ts';
import { provision } from '../src/operator/lifecycle/provision.ts';
import { type RunningServer, startServer } from '../src/service/server.ts';
import { startScript } from '../test/support/command-line.ts';
import { makeArchiveSettings } from './archive-settings.ts';
import type { Credentials } from './baseline.ts';
import { changeSetting, openBenchInstallation } from './bench-installation.ts';
import { prepare } from './call.ts';
import { measureCommand } from './fleet-command.ts';
import { historyReads, nextPage, type Read } from './history-reads.ts';
import {
  addActivities,
  entityCount,
  fillHistory,
  fillRecords,
  fillUsers,
  tableFacts,
} from './history-rows.ts';
import { readScriptOptions } from './script-options.ts';
import { percentile } from './spread.ts';
import { loginRequest } from './tokens.ts';

/**
 * Measures the lists of a large tenant over HTTP, one request after the other, on PostgreSQL
 * with its own defaults: with all activities, while the oldest fifth is removed by `retention
 * apply`, after that, and when as many new ones have taken the free space.
 */
const usage = {
  command: 'bench:history',
  text: 'Measures the lists of a large tenant, also during a removal.',
};
const defaults = {
  rows: 10_000_000,
  audit: 1_000_000,
  records: 10_000,
  users: 10_000,
  requests: 500,
};
const { rows, audit, records, users, requests } = readScriptOptions(usage, defaults);
/** Years over which the activities are spread, and how many of them are kept. */
const [years, kept] = [5, 4];
const aimMs = 10; // p99 of each list

const opened = await openBenchInstallation();
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
  const manifest = checkManifest(
    { slug: 'acme', name: 'Acme', admin: { email: 'a@bench.test' } },
    'acme',
  );
  const { tenant, logins } = await provision(installation, passwords, manifest);
  const self = { email: 'self@bench.test', password: generatePassword() };
  await installation.statements.query(
    `insert into roles (tenant_id, name, permissions) values ($1, 'reader', '{full.read}')`,
    [tenant.id],
  );
  const url = databaseUrl(serverUrl, tenant.databaseName);
  const facts = () => withConnection(url, client => tableFacts(client, 'activities'));
  await withConnection(url, client => fill(client, tenant));
  const person = { ...self, firstName: 'S', lastName: 'S', role: 'reader', scope: 'Self' as const };
  await addUser(installation, passwords, { tenant, ...person, entityId: Math.min(7, entityCount) });

  const settings = {
    DATABASE_URL: controlUrl,
    MASTER_KEY: masterKey,
    PORT: '0',
    MANAGEMENT_PORT: '0',
    RATE_LIMIT_GLOBAL: '1000000/60s',
    PUBLIC_URL: 'http://bench.test',
    ...(await makeArchiveSettings(folder)),
  };
  const config = readConfig(settings);
  service = await startServer({ config, installation, log: pino({ level: 'silent' }), passwords });
  const origin = `http://127.0.0.1:${service.port}`;
  const login = async (user: Credentials): Promise<string> => {
    const { body } = await prepare(origin, loginRequest(user, tenant.guid));
    return JSON.parse(body).accessToken;
  };
  const [admin = self] = logins;
  const reads = historyReads(rows, new Date(Date.now() - (years / 2) * 365 * 86_400_000));
  const measure = async (
    name: string,
    count: number,
    isDone: () => boolean = () => true,
  ): Promise<void> => {
    // expire after 15 minutes
    const tokens = { admin: await login(admin), self: await login(self) };
    const times = new Map(Object.keys(reads).map(kind => [kind, [] as number[]]));
    do {
      for (const [kind, read] of Object.entries(reads)) {
        times.get(kind)?.push(...(await timesOf(origin, read, tokens[read.who], count)));
      }
    } while (!isDone());
    log(`${name}, ms`);
    console.table(Object.fromEntries([...times].map(([kind, all]) => [kind, percentiles(all)])));
  };
  const tenantCommand = async (...args: string[]): Promise<string> => {
    const { stdout } = await measureCommand(startScript('scripts/tenant.ts', args, settings));
    console.log(stdout);
    return stdout;
  };

  await measure('warm-up', 20);
  await measure('all rows', requests);
  await tenantCommand('backup', 'init');
  await tenantCommand('backup', 'run', 'acme');
  await tenantCommand('backup', 'drill'); // only an archive that was restored once lets rows be removed
  await tenantCommand('retention', 'acme', '--activity', `${kept}y`);
  log('retention apply');
  let isApplied = false;
  const applied = tenantCommand('retention', 'apply', '--all').finally(() => {
    isApplied = true;
  });
  await measure('during the removal', 20, () => isApplied);
  if (/ 0 rows removed/.test(await applied)) throw new Error('the retention removed nothing');
  log(await facts());
  await measure('after the removal', requests);
  await withConnection(url, client =>
    addActivities(client, Math.round((rows * (years - kept)) / years)),
  );
  log(`${await facts()} after as many new rows`);
  await measure('with new rows in the free space', requests);
}

/** Fills the databases, with a longer distance of checkpoints than the measurements have. */
async function fill(client: pg.Client, tenant: Tenant): Promise<void> {
  await changeSetting(opened.serverUrl, `set max_wal_size = '8GB'`);
  log(`filling ${entityCount} entities, ${records} records of reference data, ${users} users`);
  await fillRecords(client, records);
  await withConnection(opened.controlUrl, control => fillUsers(control, tenant.id, users));
  log(`filling ${audit} audit entries`);
  await fillHistory(client, 'audit_log', audit, years);
  log(await tableFacts(client, 'audit_log'));
  log(`filling ${rows} activities`);
  await fillHistory(client, 'activities', rows, years);
  log(await tableFacts(client, 'activities'));
  await changeSetting(opened.serverUrl, 'reset max_wal_size');
  await client.query('checkpoint');
}

/**
 * Sends requests of one kind, one after the other.
 * @returns the time that each took, in ms
 */
async function timesOf(
  origin: string,
  read: Read,
  token: string,
  count: number,
): Promise<number[]> {
  const headers = { Authorization: `Bearer ${token}`, 'Cache-Control': 'no-cache' };
  const times = [];
  let next: string | undefined;
  for (let number = 0; number < count; number++) {
    const path = next ?? read.path(number);
    const startedAt = performance.now();
    const response = await fetch(origin + path, { headers });
    const body = await response.arrayBuffer();
    times.push(performance.now() - startedAt);
    if (response.status !== 200) {
      throw new Error(`${path}: ${response.status} ${Buffer.from(body)}`);
    }
    if (read.isPaged) next = nextPage(response);
  }
  return times;
}

function percentiles(times: number[]): object {
  const figures = {
    p50: percentile(times, 0.5),
    p99: percentile(times, 0.99),
    max: percentile(times, 1),
  };
  const rounded = Object.fromEntries(
    Object.entries(figures).map(([name, ms]) => [name, ms.toFixed(1)]),
  );
  return { ...rounded, [`p99 ≤ ${aimMs}`]: figures.p99 <= aimMs ? 'yes' : 'no' };
}

function log(text: string): void {
  console.log(`${new Date().toISOString().slice(11, 19)} ${text}`);
}
