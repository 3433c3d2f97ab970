import { createPasswords } from '../src/accounts/auth/passwords.ts';
import { withConnection } from '../src/lib/postgres/connection.ts';
import { checkManifest } from '../src/operator/lifecycle/manifest.ts';
import { provision } from '../src/operator/lifecycle/provision.ts';
import { ensureTemplate } from '../src/operator/schema/template.ts';
import { type BenchInstallation, withBenchInstallation } from './bench-installation.ts';
import { readScriptOptions } from './script-options.ts';
import { roundedSpread, timed } from './spread.ts';

/**
 * Measures a provision, and ten that begin at once, beside a bare `CREATE DATABASE` of the same
 * template.
 */
const usage = {
  command: 'bench:provision',
  text: 'Measures provisioning, compared with a bare CREATE DATABASE.',
};
const { tenants: rounds } = readScriptOptions(usage, { tenants: 30 });

/** Provisions that begin at once, and how often. */
const atOnce = 10;
const atOnceRounds = 5;

await withBenchInstallation(bench);

async function bench({ installation, server, controlUrl }: BenchInstallation): Promise<void> {
  const passwords = createPasswords();
  const tenant = (slug: string) =>
    provision(
      installation,
      passwords,
      checkManifest({ slug, name: slug, admin: { email: 'admin@bench.test' } }, slug),
    );
  await tenant('first');

  const bare: number[] = [];
  const one: number[] = [];
  const ten: number[] = [];
  await withConnection(controlUrl, async client => {
    const template = await ensureTemplate(client, server, controlUrl);
    for (let round = 0; round < rounds; round++) {
      bare.push(
        await timed(() =>
          client.query(`create database bare_${round} template ${template} strategy wal_log`),
        ),
      );
      one.push(await timed(() => tenant(`one-${round}`)));
    }
  });
  for (let round = 0; round < atOnceRounds; round++) {
    const slugs = Array.from({ length: atOnce }, (_, number) => `ten-${round}-${number}`);
    ten.push(await timed(() => Promise.all(slugs.map(tenant))));
  }

  const ratios = one.map((ms, round) => ms / (bare[round] ?? ms));
  console.table({
    'CREATE DATABASE … TEMPLATE, ms': roundedSpread(bare),
    'provision, ms': roundedSpread(one),
    'provision / CREATE DATABASE': roundedSpread(ratios),
    [`${atOnce} provisions at once, ms`]: roundedSpread(ten),
  });
}
