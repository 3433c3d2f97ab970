import type { Command } from 'commander';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../operator-error.ts';
import { onStopSignal } from '../../signals.ts';
import type { RunReport } from '../migrations/migrate-tenants.ts';
import type { RunRequest } from '../migrations/migration-runs.ts';
import { parsePositive, withInstallation } from './command.ts';
import { confirmBlocking, type DespiteRunningOptions, despiteRunningOption } from './confirm-blocking.ts';
import { outcomeText, plansText, reportText } from './migrate-text.ts';
import { type OutputOptions, printPart, printResult, printText, showsProgress } from './output.ts';
import { Progress } from './progress.ts';
import { withSpinner } from './spinner.ts';

interface MigrateOptions extends RunRequest, OutputOptions, DespiteRunningOptions {
  all?: boolean;
  dryRun?: boolean;
}

const help = `
Each tenant is migrated in one transaction, and its schema is compared with the template before the commit.
Meanwhile requests for that tenant get 503 migration_pending, unless all its migrations are compatible with the
running build; all other tenants are served. A tenant whose migration fails stays as it was, and the run continues
with the others. A tenant that is already at the version of this build costs no connection.

The run is refused while a running process serves a tenant that it could not serve afterwards: the process has an
older build, and a migration is not compatible with it. A process that has sent no heartbeat for 10 s does not count.

Run the command again after an interruption of any kind: it does what is left, and nothing twice. Two runs at the
same time share the work. Ctrl-C starts no further tenant and waits for the running migrations.

npx backoffice status shows what failed, and why.

Exit code: 0 when all tenants are at the version of this build, 1 when some are not, 2 for wrong usage.`;

const exitInterrupted = 130; // 128 and the number of SIGINT, as shells report it
const maxCloseMs = 1_000;

/** Adds `migrate`: brings tenant databases to head. */
export function addMigrateCommand(program: Command): void {
  program
    .command('migrate')
    .description('bring tenant databases to the version of this build')
    .argument('[slug...]', 'only these tenants')
    .option('--all', 'every tenant')
    .option('--concurrency <n>', 'tenants migrated at the same time on each server', parsePositive, 4)
    .option('--canary <n>', 'migrate n tenants first, and stop if one of them fails', parsePositive)
    .option('--max-failures <n>', 'start no further tenant after n failures', parsePositive)
    .option('--retry-failed', 'only tenants whose last migration failed')
    .option(...despiteRunningOption)
    .option('--dry-run', 'print the SQL that would run, and for which tenants; opens no tenant database')
    .option('--json', 'print one JSON line for each tenant on stdout (with --dry-run: one JSON document)')
    .addHelpText('after', help)
    .action(
      withInstallation(async (installation, slugs: string[], options: MigrateOptions) => {
        const { all, dryRun, json = false, despiteRunning = false, ...request } = options;
        if (slugs.length === 0 && !all && !request.retryFailed) {
          throw new OperatorError('Name tenants, or give --all or --retry-failed', { usage: true });
        }
        const only = all || slugs.length === 0 ? undefined : slugs;
        const { processesBlockingRun } = await import('../migrations/blocking-processes.ts');
        const blockedBy = await processesBlockingRun(installation, { ...request, slugs: only });
        if (dryRun) {
          const { planRun } = await import('../migrations/dry-run.ts');
          const plan = { ...(await planRun(installation, only)), blockedBy };
          printResult({ json }, plan, () => plansText(plan));
          return true;
        }
        await confirmBlocking(blockedBy, { despiteRunning });
        const report = await runMigrations(installation, { ...request, slugs: only }, json);
        printText({ json }, () => reportText(report));
        return report.state === 'succeeded';
      }),
    );
}

/** Runs the migrations with a progress bar on a terminal. Prints the outcome of each tenant when it is known. */
async function runMigrations(installation: Installation, request: RunRequest, json: boolean): Promise<RunReport> {
  const { migrateTenants } = await import('../migrations/migrate-tenants.ts');
  const progress = showsProgress() ? new Progress() : undefined;
  const interrupted = new AbortController();
  let hasStarted = false;
  const halt = (): void => {
    if (!hasStarted) return void exitAtOnce(installation);
    interrupted.abort();
    progress?.end();
    process.stderr.write(
      'Ctrl-C: waiting for the running migrations. Press it again to end at once; no data is lost.\n',
    );
  };
  onStopSignal(['SIGINT'], halt, () => process.exit(exitInterrupted));
  const started = Promise.withResolvers<void>();
  const spinner = withSpinner('reading the template', started.promise);
  try {
    return await migrateTenants(installation, request, {
      signal: interrupted.signal,
      onStart: total => {
        hasStarted = true;
        started.resolve();
        progress?.start(total);
      },
      onOutcome: outcome => {
        progress?.advance(outcome.state === 'failed');
        // On a terminal the progress bar replaces these lines, and the report lists the failures.
        if (json || !progress) printPart({ json }, outcome, () => outcomeText(outcome));
      },
    });
  } finally {
    started.resolve();
    await spinner;
    progress?.end();
  }
}

/** No tenant is being migrated. Leaves an embedded PostgreSQL, so that it does not continue to run. */
async function exitAtOnce(installation: Installation): Promise<void> {
  setTimeout(() => process.exit(exitInterrupted), maxCloseMs).unref();
  await installation.close().catch(() => {});
  process.exit(exitInterrupted);
}
