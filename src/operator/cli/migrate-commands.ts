import type { Command } from 'commander';
import { OperatorError } from '../../operator-error.ts';
import { planRun } from '../migrations/dry-run.ts';
import { fleetStatus } from '../migrations/fleet-status.ts';
import { migrateTenants, type RunReport, type TenantOutcome } from '../migrations/migrate-tenants.ts';
import type { RunRequest } from '../migrations/migration-runs.ts';
import { rollback } from '../migrations/rollback.ts';
import { findTenant } from '../tenants/tenants.ts';
import { positive, printJson, printTable, withInstallation } from './command.ts';
import { Progress } from './progress.ts';
import { during } from './spinner.ts';
import { confirm } from './state-commands.ts';

interface MigrateOptions extends RunRequest {
  all?: boolean;
  dryRun?: boolean;
  json?: boolean;
}

const migrateHelp = `
Each tenant is migrated in one transaction and compared with the template before it is committed; while that
happens it is answered with 503 migration_pending, and all others are served. A tenant that fails stays as it
was, and the others go on. Tenants that are at the version of this build already cost no connection.

Run it again after it was ended in any way: it does what is left, and nothing twice. Two runs at once share the
work. Ctrl-C begins no further tenant and ends when those under way are done.

  npm run -s tenant -- migrate --all --dry-run            what would run, and where
  npm run -s tenant -- migrate --all --canary 2           two tenants first
  npm run -s tenant -- status                             what failed, and why
  npm run -s tenant -- migrate --retry-failed             those again

Exit code: 0 all are at the version of this build, 1 some are not, 2 wrong usage.`;

/** Migrations over the fleet. */
export function addMigrateCommands(tenant: Command): void {
  tenant
    .command('migrate')
    .description('bring tenant databases to the version of this build')
    .argument('[slug...]', 'only these tenants')
    .option('--all', 'every tenant')
    .option('--concurrency <n>', 'tenants at the same time on each server', positive, 4)
    .option('--canary <n>', 'migrate n tenants first, and stop there if one of them fails', positive)
    .option('--max-failures <n>', 'begin no further tenant when n have failed', positive)
    .option('--retry-failed', 'only tenants that failed when a run last came to them')
    .option('--dry-run', 'print the SQL that would run and for whom; opens no tenant database')
    .option('--json', 'a JSON line for each tenant on stdout (with --dry-run: one JSON document)')
    .addHelpText('after', migrateHelp)
    .action(
      withInstallation(async (installation, slugs: string[], { all, dryRun, json, ...request }: MigrateOptions) => {
        if (slugs.length === 0 && !all && !request.retryFailed) {
          throw new OperatorError('name tenants, or say --all or --retry-failed', { usage: true });
        }
        const only = all || slugs.length === 0 ? undefined : slugs;
        if (dryRun) return printPlans(await planRun(installation, only), json);

        const progress = process.stderr.isTTY ? new Progress() : undefined;
        const interrupted = new AbortController();
        process.once('SIGINT', () => {
          interrupted.abort();
          progress?.end();
          process.stderr.write('Ctrl-C: what is under way is finished. Once more ends it now; nothing is lost.\n');
        });
        const starting = Promise.withResolvers<void>();
        const preparing = during('reading the template', starting.promise);
        const running = migrateTenants(
          installation,
          { ...request, slugs: only },
          {
            signal: interrupted.signal,
            onStart: total => {
              starting.resolve();
              progress?.start(total);
            },
            onOutcome: outcome => {
              progress?.advance(outcome.state === 'failed');
              if (json) process.stdout.write(`${JSON.stringify(outcome)}\n`);
              else if (!progress) process.stdout.write(`${outcome.slug}: ${describe(outcome)}\n`);
            },
          },
        );
        const report = await running.finally(() => starting.resolve());
        await preparing;
        progress?.end();
        if (!json) printReport(report);
        return report.state === 'succeeded';
      }),
    );
  addRollback(tenant);
  addStatus(tenant);
}

function addRollback(tenant: Command): void {
  tenant
    .command('rollback')
    .description('undo the last migration of one tenant, which this build then answers with 503 migration_pending')
    .argument('<slug>')
    .option('--yes', 'do not ask')
    .option('--json', 'one JSON document on stdout')
    .addHelpText(
      'after',
      '\nWhat the migration added is gone, with its data. The build before this one can serve the tenant then;\nmigrate brings it forward again.',
    )
    .action(
      withInstallation(async (installation, slug: string, { yes, json }: { yes?: boolean; json?: boolean }) => {
        await findTenant(installation, slug);
        await confirm(slug, 'loses what its last migration added, and this build serves it no longer', yes);
        const { from, to } = await during(`rolling ${slug} back`, rollback(installation, slug));
        if (json) printJson({ slug, from, to });
        else process.stdout.write(`${slug}: ${from} → ${to}\n`);
      }),
    );
}

function addStatus(tenant: Command): void {
  tenant
    .command('status')
    .description('the fleet by schema version and state, and what became of the last run')
    .option('--json', 'one JSON document on stdout')
    .action(
      withInstallation(async (installation, { json }: { json?: boolean }) => {
        const { head, fleet, failing, lastRun } = await fleetStatus(installation);
        if (json) return printJson({ head, fleet, failing, lastRun });
        process.stdout.write(`This build: ${head}\n\n`);
        const rows = fleet.map(row => ({ ...row, schemaVersion: row.schemaVersion ?? 'between versions' }));
        printTable(rows, 'No tenants yet.');
        if (!lastRun) return;
        const { id, state, requestedBy, startedAt, outcomes } = lastRun;
        const counts = Object.entries(outcomes).map(([name, count]) => `${count} ${name}`);
        process.stdout.write(`\nLast run: ${id}, ${state}, ${startedAt} by ${requestedBy}: ${counts.join(', ')}\n`);
        if (failing.length === 0) return;
        process.stdout.write('\nFailed when a run last came to them (migrate --retry-failed takes these):\n');
        printTable(failing, '');
      }),
    );
}

function printReport({ state, outcomes, skipped }: RunReport): void {
  const of = (wanted: string) => outcomes.filter(outcome => outcome.state === wanted);
  const failures = of('failed');
  if (outcomes.length === 0 && skipped === 0) {
    process.stdout.write('Nothing to do.\n');
    return;
  }
  if (failures.length > 0) {
    process.stdout.write('\n');
    printTable(
      failures.map(({ slug, from, error }) => ({ tenant: slug, at: from, error })),
      '',
    );
    process.stdout.write('\n');
  }
  const counts = [`${of('migrated').length} migrated`, `${failures.length} failed`];
  if (of('current').length > 0) counts.push(`${of('current').length} current`);
  if (skipped > 0) counts.push(`${skipped} not begun`);
  process.stdout.write(`${state === 'halted' ? 'Halted: ' : ''}${counts.join(', ')}.\n`);
  if (skipped > 0) process.stdout.write('The next migrate --all does the rest.\n');
}

function printPlans({ head, plans }: Awaited<ReturnType<typeof planRun>>, json = false): void {
  if (json) {
    printJson({ head, plans });
    return;
  }
  if (plans.length === 0) process.stdout.write('Nothing to do.\n');
  for (const { version, tenants, migrations, note } of plans) {
    const to = note ? '' : ` → ${head}`;
    process.stdout.write(`-- ${version ?? 'version not known'}${to}: ${tenants.length} (${tenants.join(', ')})\n`);
    if (note) process.stdout.write(`-- ${note}\n`);
    for (const { name, sql } of migrations) {
      process.stdout.write(`-- ${name}\n${sql.map(statement => `${statement.trim()};\n`).join('')}`);
    }
    process.stdout.write('\n');
  }
}

function describe({ state, from, to, ms, error }: TenantOutcome): string {
  if (state === 'failed') return `failed at ${from ?? 'nothing'}: ${error}`;
  return state === 'current' ? `is at ${to} (${ms} ms)` : `${from ?? 'nothing'} → ${to} (${ms} ms)`;
}
