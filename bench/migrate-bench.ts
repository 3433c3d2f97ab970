import pLimit from 'p-limit';
import pg from 'pg';
import { type Server, Tenant } from '../src/control/fleet-entities.ts';
import { databaseUrl } from '../src/control/server-urls.ts';
import { migrateTenants } from '../src/operator/schema/migrate-tenants.ts';
import { readSchemaSteps } from '../src/operator/schema/schema-steps.ts';
import { ensureTemplate, migrationSettings } from '../src/operator/schema/template.ts';
import { withConnection } from '../src/postgres/connection.ts';
import { loadMigrations, runMigrations } from '../src/postgres/migration-steps.ts';
import { fingerprint } from '../src/postgres/schema-fingerprint.ts';
import { type BenchInstallation, withBenchInstallation } from './bench-installation.ts';
import { readScriptOptions } from './script-options.ts';
import { spread, timed } from './spread.ts';
import { cpuOfFamily } from './usage.ts';

/**
 * Measures migration runs, compared with raw `pg`, which sends the statements of the last migration over the same
 * number of connections, in one round trip per tenant, and keeps no ledger. Every round reverts and repeats the last
 * migration in every database, once with each method, so that ratios compare values of the same round. The CPU time is
 * that of this process and of PostgreSQL, and depends less than the duration on what else the machine does.
 */
const usage = { command: 'bench:migrate', text: 'Measures migration runs, compared with raw pg.' };
interface Cost {
  ms: number;
  cpuMs: number;
}

const { tenants, rounds, concurrency } = readScriptOptions(usage, { tenants: 200, rounds: 5, concurrency: 4 });

await withBenchInstallation(bench, ['max_connections=100', 'shared_buffers=256MB']);

async function bench({ installation, server, serverUrl, postgresPid }: BenchInstallation): Promise<void> {
  const em = installation.control.em.fork();
  const steps = await readSchemaSteps();
  const last = steps.at(-1);
  const before = steps.at(-2)?.name;
  if (!last || !before) throw new Error('at least two tenant migrations are needed');
  const urls = await makeTenants(server);
  const flags = Object.entries(migrationSettings(server)).map(([name, value]) => `-c ${name}=${value}`);
  const migrations = await loadMigrations('tenant');

  const each = (work: (url: string) => Promise<unknown>) => pLimit(concurrency).map(urls, work);
  const send = async (url: string, sql: string[], checkSchema = false): Promise<void> => {
    const client = new pg.Client({ connectionString: url, options: flags.join(' ') });
    await client.connect();
    await client.query(['begin', ...sql, 'commit'].join(';\n'));
    if (checkSchema) await fingerprint(client);
    await client.end();
  };
  const revert = async (): Promise<void> => {
    await each(url => send(url, [...last.down, `delete from migrations where name = '${last.name}'`]));
    await em.nativeUpdate(Tenant, {}, { schemaVersion: before, schemaFingerprint: null });
  };
  const run = async (): Promise<void> => {
    const { outcomes, state } = await migrateTenants(installation, { concurrency });
    if (state !== 'succeeded' || outcomes.length !== tenants) throw new Error(JSON.stringify(outcomes.slice(0, 3)));
  };
  const up = [...last.up, `insert into migrations (name) values ('${last.name}')`];
  const methods: Record<string, () => Promise<unknown>> = {
    'raw pg': () => each(url => send(url, up)),
    'raw pg + fingerprint': () => each(url => send(url, up, true)),
    'migration run': run,
    'MikroORM migrator': () => each(url => runMigrations(url, migrations, migrationSettings(server))),
  };

  const nothingToDo = async (): Promise<void> => {
    const { outcomes } = await migrateTenants(installation, { concurrency });
    if (outcomes.length > 0) throw new Error('a migration was pending');
  };
  const costs = new Map<string, Cost[]>();
  const measure = async (name: string, method: () => Promise<unknown>): Promise<void> => {
    const cpuBefore = await cpuMs(postgresPid);
    const ms = await timed(method);
    costs.set(name, [...(costs.get(name) ?? []), { ms, cpuMs: (await cpuMs(postgresPid)) - cpuBefore }]);
  };
  await run(); // warm-up; also reads the template
  for (let round = 0; round < rounds; round++) {
    for (const [name, method] of Object.entries(methods)) {
      await revert();
      await measure(name, method);
      if (method === run) await measure('nothing to do', nothingToDo);
    }
  }
  print(costs);

  async function makeTenants(on: Server): Promise<string[]> {
    const template = await ensureTemplate(on, serverUrl);
    const urls: string[] = [];
    await withConnection(serverUrl, async client => {
      for (let number = 1; number <= tenants; number++) {
        const slug = `tenant-${String(number).padStart(4, '0')}`;
        const tenant = em.create(Tenant, {
          slug,
          name: slug,
          appId: slug,
          status: 'active',
          server: em.merge(on),
          databaseName: slug,
          roleName: slug,
          rolePassword: Buffer.alloc(0),
          schemaVersion: steps.at(-1)?.name ?? null,
        });
        await em.flush();
        await client.query(`create database "${slug}" template "${template}" strategy wal_log`);
        const url = databaseUrl(serverUrl, slug);
        await withConnection(url, inside =>
          inside.query('insert into tenant_identity (guid) values ($1)', [tenant.guid]),
        );
        urls.push(url);
      }
    });
    em.clear();
    return urls;
  }
}

/** Returns the CPU time of this process and of PostgreSQL so far. */
async function cpuMs(postgresPid: number): Promise<number> {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1_000 + (await cpuOfFamily(postgresPid));
}

function print(costs: ReadonlyMap<string, Cost[]>): void {
  const baseline = costs.get('raw pg') ?? [];
  console.log(`${tenants} tenants, ${concurrency} connections, ${rounds} rounds; ratios to raw pg in the same round\n`);
  for (const [name, all] of costs) {
    const ratio = (kind: keyof Cost): string => {
      const ratios = all.map((cost, round) => cost[kind] / (baseline[round]?.[kind] ?? Number.NaN));
      const [low, median, high] = Object.values(spread(ratios)).map(each => each.toFixed(2));
      return `${median} (${low}–${high})`;
    };
    const [min, middle, max] = Object.values(spread(all.map(({ ms }) => ms))).map(ms => ms.toFixed(0));
    const cpu = (spread(all.map(each => each.cpuMs)).median / tenants).toFixed(1);
    console.log(
      `${name.padEnd(20)} ${ratio('ms')}   CPU ${ratio('cpuMs')}, ${cpu} ms per tenant   ms min/median/max ${min}/${middle}/${max}`,
    );
  }
  const { rss, heapUsed } = process.memoryUsage();
  const mb = (bytes: number): string => (bytes / 1024 ** 2).toFixed(0);
  console.log(`\nmemory at the end: rss ${mb(rss)} MB, heap ${mb(heapUsed)} MB`);
}
