import { parseArgs } from 'node:util';
import pg from 'pg';
import { type Server, Tenant } from '../src/control/fleet-entities.ts';
import { databaseUrl } from '../src/control/server-urls.ts';
import { migrateTenants } from '../src/operator/migrations/migrate-tenants.ts';
import { readSchemaSteps } from '../src/operator/schema/schema-steps.ts';
import { ensureTemplate, migrationSettings } from '../src/operator/schema/template.ts';
import { withConnection } from '../src/postgres/connection.ts';
import { loadMigrations, runMigrations } from '../src/postgres/migration-steps.ts';
import { fingerprint } from '../src/postgres/schema-fingerprint.ts';
import { openBenchInstallation } from './bench-installation.ts';
import { spread, timed } from './spread.ts';

/**
 * What a run over the fleet costs beside the floor: raw `pg` that sends the statements of the last migration over the same
 * number of connections, one round trip for each tenant, and keeps no books. Every round undoes and redoes the last
 * migration in every database, each way in turn, so that ratios are of one moment of one machine.
 */
const { values } = parseArgs({
  options: {
    tenants: { type: 'string', default: '200' },
    rounds: { type: 'string', default: '5' },
    concurrency: { type: 'string', default: '4' },
  },
});
const [tenants, rounds, concurrency] = [values.tenants, values.rounds, values.concurrency].map(Number) as [
  number,
  number,
  number,
];

const opened = await openBenchInstallation(['max_connections=100', 'shared_buffers=256MB']);
try {
  await bench();
} finally {
  await opened.close();
}

async function bench(): Promise<void> {
  const { installation, server, serverUrl } = opened;
  const em = installation.control.em.fork();
  const steps = await readSchemaSteps();
  const last = steps.at(-1);
  const before = steps.at(-2)?.name;
  if (!last || !before) throw new Error('there is no migration to measure with');
  const urls = await makeTenants(server);
  const flags = Object.entries(migrationSettings(server)).map(([name, value]) => `-c ${name}=${value}`);
  const migrations = await loadMigrations('tenant');

  /** `work` for every database, over the same number of connections as a run. */
  async function each(work: (url: string) => Promise<unknown>): Promise<void> {
    const left = [...urls];
    await Promise.all(
      Array.from({ length: concurrency }, async () => {
        for (let url = left.pop(); url; url = left.pop()) await work(url);
      }),
    );
  }
  const statements = async (url: string, sql: string[], compare = false): Promise<void> => {
    const client = new pg.Client({ connectionString: url, options: flags.join(' ') });
    await client.connect();
    await client.query(['begin', ...sql, 'commit'].join(';\n'));
    if (compare) await fingerprint(client);
    await client.end();
  };
  const undo = async (): Promise<void> => {
    await each(url => statements(url, [...last.down, `delete from migrations where name = '${last.name}'`]));
    await em.nativeUpdate(Tenant, {}, { schemaVersion: before, schemaFingerprint: null });
  };
  const run = async (): Promise<void> => {
    const { outcomes, state } = await migrateTenants(installation, { concurrency });
    if (state !== 'succeeded' || outcomes.length !== tenants) throw new Error(JSON.stringify(outcomes.slice(0, 3)));
  };
  const up = [...last.up, `insert into migrations (name) values ('${last.name}')`];
  const ways: Record<string, () => Promise<void>> = {
    'raw pg': () => each(url => statements(url, up)),
    'raw pg, compared': () => each(url => statements(url, up, true)),
    'a run': run,
    'MikroORM migrator': () => each(url => runMigrations(url, migrations, migrationSettings(server))),
  };

  const times: Record<string, number[]> = Object.fromEntries(
    [...Object.keys(ways), 'nothing to do'].map(name => [name, []]),
  );
  await run(); // reads the template, and warms up
  for (let round = 0; round < rounds; round++) {
    for (const [name, way] of Object.entries(ways)) {
      await undo();
      times[name]?.push(await timed(way));
      if (name === 'a run') {
        times['nothing to do']?.push(
          await timed(async () => {
            const { outcomes } = await migrateTenants(installation, { concurrency });
            if (outcomes.length > 0) throw new Error('there was something to do');
          }),
        );
      }
    }
  }
  print(times);

  async function makeTenants(on: Server): Promise<string[]> {
    const template = await ensureTemplate(on, serverUrl);
    const made: string[] = [];
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
        made.push(url);
      }
    });
    em.clear();
    return made;
  }
}

function print(times: Record<string, number[]>): void {
  const floor = times['raw pg'] ?? [];
  console.log(`${tenants} tenants, ${concurrency} connections, ${rounds} rounds; ratios to raw pg in the same round\n`);
  for (const [name, all] of Object.entries(times)) {
    const ratios = all.map((ms, round) => ms / (floor[round] ?? Number.NaN));
    const [least, middle, most] = Object.values(spread(all)).map(ms => ms.toFixed(0));
    const [low, median, high] = Object.values(spread(ratios)).map(ratio => ratio.toFixed(2));
    console.log(`${name.padEnd(18)} ${median} (${low}–${high})   ms min/median/max ${least}/${middle}/${most}`);
  }
  const { rss, heapUsed } = process.memoryUsage();
  const mb = (bytes: number): string => (bytes / 1024 ** 2).toFixed(0);
  console.log(`\nmemory at the end: rss ${mb(rss)} MB, heap ${mb(heapUsed)} MB`);
}
