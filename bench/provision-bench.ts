import { createPasswords } from '../src/auth/passwords.ts';
import { Server } from '../src/control/control-entities.ts';
import { fillPool } from '../src/operator/databases/warm-pool.ts';
import { checkManifest } from '../src/operator/lifecycle/manifest.ts';
import { provision } from '../src/operator/lifecycle/provision.ts';
import { ensureTemplate } from '../src/operator/schema/template.ts';
import { withConnection } from '../src/postgres/connection.ts';
import { type BenchInstallation, withBenchInstallation } from './bench-installation.ts';
import { readScriptOptions } from './script-options.ts';
import { roundedSpread, timed } from './spread.ts';

/**
 * Measures provisioning, compared with a bare `CREATE DATABASE … TEMPLATE` of the same template in the same round.
 * Cold: the database is copied during provisioning; warm: it was copied before, into the warm pool.
 */
const usage = { command: 'bench:provision', text: 'Measures provisioning, compared with a bare CREATE DATABASE.' };
const { tenants: rounds } = readScriptOptions(usage, { tenants: 30 });

await withBenchInstallation(bench);

async function bench({ installation, server, controlUrl }: BenchInstallation): Promise<void> {
  const template = await ensureTemplate(server, controlUrl);
  const passwords = createPasswords();
  const tenant = (slug: string) =>
    provision(installation, passwords, checkManifest({ slug, name: slug, admin: { email: 'admin@bench.test' } }, slug));
  await tenant('warm-up');
  const servers = await installation.control.em.fork().findAll(Server);

  const bare: number[] = [];
  const cold: number[] = [];
  const fill: number[] = [];
  const warm: number[] = [];
  await withConnection(controlUrl, async client => {
    for (let round = 0; round < rounds; round++) {
      bare.push(await timed(() => client.query(`create database bare_${round} template ${template} strategy wal_log`)));
      cold.push(await timed(() => tenant(`cold-${round}`)));
      fill.push(await timed(() => fillPool(installation, servers, 1)));
      warm.push(await timed(() => tenant(`warm-${round}`)));
    }
  });
  const ratios = (times: number[]) => times.map((ms, round) => ms / (bare[round] ?? ms));
  console.table({
    'CREATE DATABASE … TEMPLATE, ms': roundedSpread(bare),
    'cold provision, ms': roundedSpread(cold),
    'warm provision, ms': roundedSpread(warm),
    'pool fill, ms': roundedSpread(fill),
    'cold provision / CREATE DATABASE': roundedSpread(ratios(cold)),
    'warm provision / CREATE DATABASE': roundedSpread(ratios(warm)),
    'pool fill / CREATE DATABASE': roundedSpread(ratios(fill)),
  });
}
