import type { Command } from 'commander';
import { OperatorError } from '../../operator-error.ts';
import { onStopSignal } from '../../signals.ts';
import { parsePositive, withInstallation } from './command.ts';
import { type OutputOptions, printPart, showsProgress } from './output.ts';
import { Progress } from './progress.ts';
import { retentionOutcomeText, retentionReportText } from './retention-text.ts';

interface ApplyOptions extends OutputOptions {
  all?: boolean;
  dryRun?: boolean;
  yes?: boolean;
  concurrency: number;
}

const exitInterrupted = 130; // 128 and the number of SIGINT, as shells report it

const help = `
Removes by whole months, in UTC, so that there is something to do for a tenant once in a month. A row is removed only if the
newest archive of its tenant has it: every byte of the archive is checked, each removed row is compared with it, and the
archive is kept as long as BACKUP_KEEP goes back. So let "backup run --all" come before.

Refused for a tenant: no archive, or a faulty one; rows from the future or a wrong clock; more than half of the rows, unless
you name the tenant and give --yes. Run it again after an interruption of any kind: it goes on.

Exit code: 0 when the retention of every tenant is applied, 1 when it failed for one, 2 for wrong usage.`;

/** Adds `retention apply`. */
export function addApplyRetention(retention: Command): void {
  retention
    .command('apply')
    .description('remove the activities and audit entries that are older than their tenants keep them')
    .argument('[slug...]', 'only from these tenants')
    .option('--all', 'from every tenant')
    .option('--dry-run', 'check everything and show what would be removed, and remove nothing')
    .option('--yes', 'remove also more than half of the rows of the named tenants')
    .option('--concurrency <n>', 'tenants at the same time', parsePositive, 2)
    .option('--json', 'print JSON lines on stdout, the last one with the totals')
    .addHelpText('after', help)
    .action(
      withInstallation(async (installation, slugs: string[], options: ApplyOptions) => {
        const { all, dryRun = false, yes = false, concurrency, json = false } = options;
        if ((slugs.length === 0) === !all) throw new OperatorError('Name tenants, or give --all', { usage: true });
        if (all && yes) throw new OperatorError('Name the tenants that --yes is for', { usage: true });
        const { readConfig } = await import('../../config.ts');
        const { openTarget } = await import('../backup/targets/open-target.ts');
        const { applyRetention } = await import('../retention/apply-retention.ts');
        const { backup } = readConfig();
        const progress = showsProgress() ? new Progress() : undefined;
        const request = { slugs: all ? undefined : slugs, concurrency, keep: backup.keep, dryRun, confirmed: yes };
        const report = await applyRetention(installation, openTarget(backup), request, {
          signal: stopOnInterrupt(progress),
          onStart: total => progress?.start(total),
          onOutcome: outcome => {
            progress?.advance(outcome.state === 'failed');
            progress?.end();
            if (json || outcome.state !== 'nothing') printPart({ json }, outcome, () => retentionOutcomeText(outcome));
          },
        }).finally(() => progress?.end());
        printPart({ json }, report, () => retentionReportText(report, dryRun));
        return report.failed === 0;
      }),
    );
}

/** Lets Ctrl-C begin no further batch of rows. Pressed again, it ends the process. */
function stopOnInterrupt(progress: Progress | undefined): AbortSignal {
  const interrupted = new AbortController();
  const stop = (): void => {
    interrupted.abort();
    progress?.end();
    process.stderr.write('Interrupted: waiting for the running batches. Run it again to go on.\n');
  };
  onStopSignal(['SIGINT', 'SIGTERM'], stop, () => process.exit(exitInterrupted));
  return interrupted.signal;
}
