import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { createPasswords } from '../src/auth/passwords.ts';
import { readConfig } from '../src/config.ts';
import { Server } from '../src/control/entities.ts';
import { databaseUrl } from '../src/control/servers.ts';
import { startEmbeddedPostgres } from '../src/embedded/postgres.ts';
import { withConnection } from '../src/fleet/admin-connection.ts';
import { openInstallation } from '../src/fleet/installation.ts';
import { checkManifest } from '../src/fleet/manifest.ts';
import { migrateControl } from '../src/fleet/migrate-control.ts';
import { provision } from '../src/fleet/provision.ts';
import { ensureTemplate } from '../src/fleet/template.ts';
import { fillPool } from '../src/fleet/warm-pool.ts';

/**
 * What a tenant costs beside the floor: a bare `CREATE DATABASE … TEMPLATE` of the same template, in turn with it, so that
 * ratios are of one moment of one machine. Cold: its database is copied then; warm: it was copied before, into the pool.
 */
const { values } = parseArgs({ options: { tenants: { type: 'string', default: '30' } } });
const rounds = Number(values.tenants);

const folder = await mkdtemp(join(tmpdir(), 'backoffice-bench-'));
const postgres = await startEmbeddedPostgres(folder);
try {
  await bench();
} finally {
  await postgres.leave();
  await rm(folder, { recursive: true, force: true });
}

async function bench(): Promise<void> {
  const controlUrl = databaseUrl(postgres.url, 'backoffice');
  await withConnection(postgres.url, client => client.query('create database backoffice'));
  await migrateControl(controlUrl);
  const masterKey = randomBytes(32).toString('base64');
  const installation = await openInstallation(readConfig({ DATABASE_URL: controlUrl, MASTER_KEY: masterKey }));
  const server = await installation.control.em.fork().findOneOrFail(Server, { name: 'default' });
  const template = await ensureTemplate(server, controlUrl);
  const passwords = createPasswords();
  const tenant = (slug: string) =>
    provision(installation, passwords, checkManifest({ slug, name: slug, admin: { email: 'admin@bench.test' } }, slug));
  await tenant('warm-up');

  const bare: number[] = [];
  const cold: number[] = [];
  const fill: number[] = [];
  const warm: number[] = [];
  await withConnection(controlUrl, async client => {
    for (let round = 0; round < rounds; round++) {
      bare.push(await timed(() => client.query(`create database bare_${round} template ${template} strategy wal_log`)));
      cold.push(await timed(() => tenant(`cold-${round}`)));
      fill.push(await timed(() => fillPool(installation, 1)));
      warm.push(await timed(() => tenant(`warm-${round}`)));
    }
  });
  await installation.close();
  const ratios = (times: number[]) => times.map((ms, round) => ms / (bare[round] ?? ms));
  console.table({
    'CREATE DATABASE … TEMPLATE, ms': spread(bare),
    'cold provision, ms': spread(cold),
    'warm provision, ms': spread(warm),
    'pool fill, ms': spread(fill),
    'cold provision / CREATE DATABASE': spread(ratios(cold)),
    'warm provision / CREATE DATABASE': spread(ratios(warm)),
    'pool fill / CREATE DATABASE': spread(ratios(fill)),
  });
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const startedAt = performance.now();
  await work();
  return performance.now() - startedAt;
}

function spread(values: number[]): { min: number; median: number; max: number } {
  const sorted = values.toSorted((a, b) => a - b);
  const at = (share: number): number => Number(sorted[Math.round((sorted.length - 1) * share)]?.toFixed(2));
  return { min: at(0), median: at(0.5), max: at(1) };
}
