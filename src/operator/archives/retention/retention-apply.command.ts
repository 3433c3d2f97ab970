import { OperatorError } from '../../../log/operator-error.ts';
import { type Context, defineOperation } from '../../command/operation.ts';
import { argumentList, flag, option, parsePositive, type Values } from '../../command/operation-fields.ts';
import { type FleetObservers, hasFailed, reportOutcomes } from '../../command/run-fleet.ts';
import { openBackupTarget } from '../open-backup-target.ts';
import type { RetentionOutcome, RetentionReport } from './apply-retention.ts';
import { retentionOutcomeText, retentionReportText } from './retention-text.ts';

const fields = {
  slug: argumentList('slug', { description: 'only from these tenants' }),
  all: flag('from every tenant'),
  yes: flag('remove also more than half of the rows of the named tenants'),
  concurrency: option('<n>', 'tenants at the same time', { parse: parsePositive, default: 2 }),
};

/** An archive has what it removes, so it destroys nothing. */
export const applyRetentionOperation = defineOperation({
  name: 'retention apply',
  description: 'remove the activities and audit entries that are older than their tenants keep them',
  fields,
  examples: ['retention apply --all --dry-run', 'retention apply --all'],
  help: `Removes by whole months, in UTC, so that there is something to do for a tenant once in a month. A row is removed only if the
newest archive of its tenant has it: every byte of the archive is checked, each removed row is compared with it, and the
archive is kept as long as BACKUP_KEEP goes back. So let "backup run --all" come before.

Refused for a tenant: no archive, or a faulty one; rows from the future or a wrong clock; more than half of the rows, unless
you name the tenant and give --yes. Run it again after an interruption of any kind: it goes on.

Exit code: 0 when the retention of every tenant is applied, 1 when it failed for one, 2 for wrong usage.`,
  access: 'installation',
  effect: 'changes',
  isPatient: () => true,
  isRoutine: true,
  isTraced: true,
  json: 'print JSON lines on stdout, the last one with the totals',
  dryRun: 'check everything and show what would be removed, and remove nothing',
  interrupt: { text: 'the running batches of rows' },
  async plan(values, context) {
    const outcomes: RetentionOutcome[] = [];
    const report = await apply(values, context, true, { onOutcome: outcome => outcomes.push(outcome) });
    const shown = outcomes.filter(isShown).sort((a, b) => Number(hasFailed(a)) - Number(hasFailed(b)));
    return {
      document: [...outcomes, report],
      text: () => [...shown.map(retentionOutcomeText), retentionReportText(report, true)].join('\n'),
      isLines: true,
      hasFailed: report.failed > 0,
    };
  },
  async run(values, context) {
    const report = await reportOutcomes(context, { hasFailed, isShown, text: retentionOutcomeText }, observers =>
      apply(values, context, false, observers),
    );
    context.output.part(report, () => retentionReportText(report, false));
    return report.failed === 0;
  },
});

function isShown({ state }: RetentionOutcome): boolean {
  return state !== 'nothing';
}

async function apply(
  { slug: slugs, all, yes, concurrency }: Values<typeof fields>,
  { installation }: Context<'installation'>,
  dryRun: boolean,
  observers: FleetObservers<RetentionOutcome>,
): Promise<RetentionReport> {
  if ((slugs.length === 0) === !all) throw new OperatorError('Name tenants, or give --all', { usage: true });
  if (all && yes) throw new OperatorError('Name the tenants that --yes is for', { usage: true });
  const { readConfig } = await import('../../../config/config.ts');
  const { applyRetention } = await import('./apply-retention.ts');
  const { keep } = readConfig().backup;
  const request = { slugs: all ? undefined : slugs, concurrency, keep, dryRun, confirmed: yes };
  return applyRetention(installation, await openBackupTarget(), request, observers);
}
