import type { ControlStatements } from '../../control/installation.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { defineOperation } from '../command/operation.ts';
import { argumentList, flag, type Values } from '../command/operation-fields.ts';

const fields = {
  finding: argumentList('finding', {
    label: 'Findings',
    description: 'what doctor prints in brackets: with --fix, repair only these',
  }),
  fix: flag(
    'make repairs without risk: correct login roles and privileges, drop what purges have left, and old templates; with findings, also those that only their operator can decide',
    { label: 'Repair', isChange: true },
  ),
  control: flag(
    'look at the control database and the catalogs of the servers alone; opens no tenant database',
    {
      label: 'Without the databases of tenants',
      isAdvanced: true,
    },
  ),
};

const doctor = defineOperation({
  name: 'doctor',
  help: {
    description: 'find orphans, stuck states, wrong privileges, bad keys and secrets, schema drift',
    examples: ['doctor', 'doctor --fix', 'doctor --fix 3f2a9c1b # repair one finding'],
    exitCodes:
      '0 when nothing is wrong, everything was fixed, or only warnings are left; otherwise 1',
    dryRun: 'show what --fix would repair of the findings of the last report; checks nothing',
  },
  fields,
  effect: 'reads',
  async plan(values, { installation }) {
    const { listRepairs } = await import('./read-findings.ts');
    const { findingText } = await import('./report-text.ts');
    await requireChosen(values, installation);
    const repairs = values.fix ? await listRepairs(installation, values.finding) : [];
    return {
      document: { repairs, state: 'planned' },
      text: () =>
        repairs.length === 0
          ? 'Nothing would be repaired.'
          : `Would be checked again, and repaired:\n${repairs.map(findingText).join('\n')}`,
    };
  },
  async run(values, { installation, output, progress }) {
    const { reportText } = await import('./report-text.ts');
    const { diagnose } = await import('./doctor.ts');
    const { storeReport, storeSizes } = await import('./reports.ts');
    await requireChosen(values, installation);
    const { fix, control, finding: chosen } = values;
    const sizes = new Map<number, number>();
    const report = await diagnose(installation, {
      fix,
      chosen,
      controlOnly: control,
      connectionBudget: installation.config.connectionBudget,
      onSize: ({ id }, bytes) => sizes.set(id, bytes),
      onStart: total => progress.start(total, 'with findings'),
      onTenant: hasFindings => progress.advance(hasFindings),
    });

    // The report on the whole fleet stays the last one when one tenant is checked.
    if (!control) await storeReport(installation.statements, report);
    await storeSizes(installation.statements, sizes);
    output.result(report, () => reportText(report));

    return report.healthy;
  },
});

/**
 * @throws {OperatorError} when findings are named that would not be repaired, or that the last
 *   report does not have
 */
async function requireChosen(
  { finding: ids, fix }: Values<typeof fields>,
  control: ControlStatements,
): Promise<void> {
  if (ids.length === 0) return;
  if (!fix) {
    throw new OperatorError('Give --fix to repair these findings, or no finding', { usage: true });
  }

  const { requireFindings } = await import('./read-findings.ts');
  await requireFindings(control, ids);
}

export const operations = [doctor];
