import type { Command } from 'commander';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../operator-error.ts';
import { onStopSignal } from '../../signals.ts';
import type { BackupTarget } from '../backup/targets/backup-target.ts';
import { countText } from '../count-text.ts';
import { archiveRow, checkText, drillText, outcomeText, reportText } from './backup-text.ts';
import { addBaseCommand } from './base-command.ts';
import { parsePositive, withInstallation } from './command.ts';
import { jsonOption, type OutputOptions, printPart, printText, showsProgress } from './output.ts';
import { printList } from './print-list.ts';
import { Progress } from './progress.ts';
import { addPruneCommand } from './prune-command.ts';

interface RunOptions extends OutputOptions {
  all?: boolean;
  concurrency: number;
}

const linesOption = ['--json', 'print JSON lines on stdout, the last one with the totals'] as const;
const exitInterrupted = 130; // 128 and the number of SIGINT, as shells report it
const defaultDrills = 5;

const runHelp = `
Archives each tenant that has changed since its last archive, in a snapshot of its own, while it is served; then the
control database. The counters of PostgreSQL prove which tenants have not changed. Each archive is compressed, and
encrypted with the key of its tenant. Afterwards removes the archives that BACKUP_KEEP does not keep.

Run it again after an interruption of any kind. Only one run is in progress at a time.

Exit code: 0 when every database is archived, 1 when one failed, 2 for wrong usage.`;

/** Adds the commands of `backup`: archives of tenant databases and of the control database. */
export function addBackupCommands(program: Command): void {
  const backup = program
    .command('backup')
    .description('archives of tenants and of the control database; base backups of servers');
  addRun(backup);
  addList(backup);
  addVerify(backup);
  addDrill(backup);
  addPruneCommand(backup);
  addBaseCommand(backup);
}

function addRun(backup: Command): void {
  backup
    .command('run')
    .description('archive the tenants that have changed, and the control database')
    .argument('[slug...]', 'only these tenants')
    .option('--all', 'every tenant')
    .option('--concurrency <n>', 'tenants archived at the same time', parsePositive, 4)
    .option(...linesOption)
    .addHelpText('after', runHelp)
    .action(
      withTarget(async (installation, target, slugs: string[], { all, concurrency, json = false }: RunOptions) => {
        if (slugs.length === 0 && !all) throw new OperatorError('Name tenants, or give --all', { usage: true });
        const { runBackup } = await import('../backup/run-backup.ts');
        const { readConfig } = await import('../../config.ts');
        const progress = showsProgress() ? new Progress() : undefined;
        const request = { slugs: all ? undefined : slugs, concurrency, keep: readConfig().backup.keep };
        const report = await runBackup(installation, target, request, {
          signal: stopOnInterrupt(progress),
          onStart: total => progress?.start(total),
          onOutcome: outcome => {
            progress?.advance(outcome.state === 'failed');
            if (json || outcome.state !== 'unchanged') {
              progress?.end();
              printPart({ json }, outcome, () => outcomeText(outcome));
            }
          },
        }).finally(() => progress?.end());
        printPart({ json }, { ...report, target: target.description }, () => reportText(report, target.description));
        return report.failed === 0;
      }),
    );
}

function addList(backup: Command): void {
  backup
    .command('list')
    .description('list the archives, the newest first')
    .argument('[slug]', 'only those of one tenant')
    .option(...jsonOption)
    .action(
      withTarget(async (installation, target, slug: string | undefined, options: OutputOptions) => {
        const { listArchives } = await import('../backup/list-archives.ts');
        const archives = await listArchives(installation, target, slug);
        const none = `${target.description} has no archive. Make one: npx backoffice backup run --all`;
        printList(options, archives, {
          row: archiveRow,
          wide: ({ id, fault }) => ({ id, fault }),
          name: ({ id }) => id,
          empty: none,
        });
      }),
    );
}

function addVerify(backup: Command): void {
  backup
    .command('verify')
    .description('check every byte of the archives, and name each one that is missing or was changed')
    .argument('[slug]', 'only those of one tenant')
    .option(...linesOption)
    .action(
      withTarget(async (installation, target, slug: string | undefined, { json = false }: OutputOptions) => {
        const { verifyArchives } = await import('../backup/verify-archives.ts');
        const progress = showsProgress() ? new Progress() : undefined;
        const checks = await verifyArchives(installation, target, slug, {
          onStart: total => progress?.start(total),
          onCheck: check => {
            progress?.advance(check.fault !== null);
            if (!json && check.fault === null) return;
            progress?.end();
            printPart({ json }, check, () => checkText(check));
          },
        }).finally(() => progress?.end());
        const faulty = checks.filter(({ fault }) => fault !== null).length;
        const bytes = checks.reduce((sum, check) => sum + check.bytes, 0);
        const total = { archives: checks.length, faulty, bytes };
        printPart({ json }, total, () => `${countText(checks.length, 'archive')} checked, ${faulty} faulty.`);
        return faulty === 0;
      }),
    );
}

function addDrill(backup: Command): void {
  backup
    .command('drill')
    .description('restore archives into scratch databases, and compare every table: proves that they can be restored')
    .option('--count <n>', 'tenants, those that were proved longest ago first', parsePositive, defaultDrills)
    .option(...linesOption)
    .action(
      withTarget(async (installation, target, { count, json = false }: OutputOptions & { count: number }) => {
        const { drillArchives } = await import('../backup/drill.ts');
        const progress = showsProgress() ? new Progress() : undefined;
        const outcomes = await drillArchives(installation, target, count, {
          onStart: total => progress?.start(total),
          onOutcome: outcome => {
            progress?.advance(outcome.state === 'failed');
            progress?.end();
            printPart({ json }, outcome, () => drillText(outcome));
          },
        }).finally(() => progress?.end());
        const failed = outcomes.filter(({ state }) => state === 'failed').length;
        printText({ json }, () => `${outcomes.length - failed} proved, ${failed} failed.`);
        return failed === 0;
      }),
    );
}

type Action<Arguments extends unknown[]> = (
  installation: Installation,
  target: BackupTarget,
  ...args: Arguments
) => Promise<unknown>;

/** Like `withInstallation`, with the target that `BACKUP_TARGET` names. */
function withTarget<Arguments extends unknown[]>(action: Action<Arguments>) {
  return withInstallation(async (installation, ...args: Arguments) => {
    const { openTarget } = await import('../backup/targets/open-target.ts');
    const { readConfig } = await import('../../config.ts');
    return action(installation, openTarget(readConfig().backup), ...args);
  });
}

/** Lets Ctrl-C begin no further archive. Pressed again, it ends the process. */
function stopOnInterrupt(progress: Progress | undefined): AbortSignal {
  const interrupted = new AbortController();
  const stop = (): void => {
    interrupted.abort();
    progress?.end();
    process.stderr.write('Ctrl-C: waiting for the running archives. Press it again to end at once; no data is lost.\n');
  };
  onStopSignal(['SIGINT'], stop, () => process.exit(exitInterrupted));
  return interrupted.signal;
}
