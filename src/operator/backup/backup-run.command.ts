import type { ConfigAccess } from '../../control/installation.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { chosenSlugs } from '../command/chosen-slugs.ts';
import { defineOperation } from '../command/operation.ts';
import { amount, argumentList, flag } from '../command/operation-fields.ts';
import { hasFailed, reportOutcomes } from '../command/run-fleet.ts';
import { backupText, outcomeText, planText } from './backup-text.ts';
import type { BackupOutcome } from './run-backup.ts';

export const runOperation = defineOperation({
  name: 'backup run',
  help: {
    description: 'archive the tenants that have changed, and the control database',
    examples: ['backup run --all', 'backup run acme globex'],
    more: `Archives each tenant that has changed since its last archive, in a snapshot of its own, while it is served; then the
control database. The counters of PostgreSQL prove which tenants have not changed, and the target must list their archive.
Each archive is compressed, and sealed for BACKUP_RECIPIENTS: this host cannot open it. Afterwards removes
the archives that BACKUP_KEEP does not keep.

Run it again after an interruption of any kind. Only one run is in progress at a time: with --all, a second one does nothing;
with tenants, it waits up to ten minutes.`,
    exitCodes:
      '0 when every database is archived and nothing was refused to be removed, or another run ' +
      'is in progress, 1 when one failed, 2 for wrong usage',
    json: 'print JSON lines on stdout, the last one with the totals',
  },
  fields: {
    slug: argumentList('slug', {
      label: 'Tenants',
      description: 'only these tenants',
      unless: ['all'],
    }),
    all: flag('every tenant', { unless: ['slug'] }),
    concurrency: amount('tenants', 'tenants archived at the same time', {
      label: 'At the same time',
      default: 4,
      isAdvanced: true,
    }),
  },
  effect: 'changes',
  handling: { isRoutine: true, isTraced: true, interrupt: { text: 'the running archives' } },
  async plan(values, { installation }) {
    const slugs = chosenSlugs(values.slug, values.all);
    const { planBackup } = await import('./run-backup.ts');
    const { recipients } = await readRequest(installation);
    const { openBackupTarget } = await import('./target/open-target.ts');
    const target = await openBackupTarget(installation);
    const planned = await planBackup(installation, target, { slugs, recipients });

    return {
      document: { state: 'planned', target: target.description, tenants: planned },
      text: () => planText(planned),
      steady: target.description, // which tenants have changed is another matter with each write
    };
  },
  async run(values, context) {
    const { installation, output } = context;
    const slugs = chosenSlugs(values.slug, values.all);
    const { recipients, keep } = await readRequest(installation);
    const { openBackupTarget } = await import('./target/open-target.ts');
    const target = await openBackupTarget(installation);
    const { runBackup } = await import('./run-backup.ts');
    const { createArchiveWriter } = await import('./archive-writer.ts');
    const write = await createArchiveWriter(installation);
    const request = { slugs, concurrency: values.concurrency, keep, recipients };
    const isShown = ({ state }: BackupOutcome): boolean => state !== 'unchanged';

    const report = await reportOutcomes(
      context,
      { hasFailed, isShown, text: outcomeText },
      observers => runBackup(installation, target, request, write, observers),
    );
    if (!report) {
      output.part(
        { state: 'running', target: target.description },
        () => 'Another backup run is in progress: this one did nothing.',
      );
      return true;
    }

    output.part({ ...report, target: target.description }, () =>
      backupText(report, target.description),
    );

    return report.failed === 0 && report.notRemoved.length === 0;
  },
});

/** @throws {OperatorError} when archives would be sealed for nobody, or cannot be sealed */
async function readRequest({ config }: ConfigAccess) {
  const { recipients, keep } = config.backup;
  if (recipients.length === 0) {
    throw new OperatorError(
      'BACKUP_RECIPIENTS is not set, so an archive would be sealed for nobody. Make an ' +
        'identity, keep it off this host, and set its recipient: bin/backoffice backup keygen',
    );
  }

  const { requireRecipients } = await import('./archive/recipients.ts');
  await requireRecipients(recipients);
  return { recipients, keep };
}
