import type { ControlStatements } from '../../installation.ts';
import { OperatorError } from '../../log/operator-error.ts';
import { defineChange } from '../command/define-change.ts';
import { defineOperation } from '../command/operation.ts';
import { argument, argumentList, flag, requiredOption, type Values } from '../command/operation-fields.ts';

const fields = {
  finding: argumentList('finding', { description: 'what doctor prints in brackets: with --fix, repair only these' }),
  fix: flag(
    'make repairs without risk: correct login roles and privileges, drop what purges have left, and old templates',
  ),
  control: flag('look at the control database and the catalogs of the servers alone; opens no tenant database'),
};

const doctor = defineOperation({
  name: 'doctor',
  description: 'find orphans, stuck states, wrong privileges, bad keys and secrets, schema drift',
  fields,
  examples: ['doctor', 'doctor --fix', 'doctor --fix 3f2a9c1b # repair one finding'],
  help: `Exit code: 0 when nothing is wrong, everything was fixed, or only warnings and accepted findings are left;
otherwise 1.`,
  effect: 'reads',
  changingFields: ['fix'],
  dryRun: 'show what --fix would repair of the findings of the last report; checks nothing',
  async plan(values, { installation }) {
    const { listRepairs } = await import('./accepted-findings.ts');
    const { findingText } = await import('./report-text.ts');
    await requireFindings(values, installation);
    const repairs = values.fix ? await listRepairs(installation.statements, values.finding) : [];
    return {
      document: { repairs, state: 'planned' },
      text: () =>
        repairs.length === 0
          ? 'Nothing would be repaired.'
          : `Would be checked again, and repaired:\n${repairs.map(findingText).join('\n')}`,
    };
  },
  async run(values, { installation, output, progress }) {
    const { readConfig } = await import('../../config/config.ts');
    const { reportText } = await import('./report-text.ts');
    const { diagnose } = await import('./doctor.ts');
    const { storeReport, storeSizes } = await import('./reports.ts');
    await requireFindings(values, installation);
    const { fix, control, finding: chosen } = values;
    const sizes = new Map<number, number>();
    const report = await diagnose(installation, {
      fix,
      chosen,
      controlOnly: control,
      connectionBudget: readConfig().connectionBudget,
      onSize: ({ id }, bytes) => sizes.set(id, bytes),
      onStart: total => progress.start(total),
      onTenant: hasFindings => progress.advance(hasFindings),
    });
    if (!control) await storeReport(installation.statements, report); // that of all tenants stays the last one
    await storeSizes(installation.statements, sizes);
    output.result(report, () => reportText(report));
    return report.healthy;
  },
});

/** @throws {OperatorError} when findings are named that would not be repaired, or that the last report does not have */
async function requireFindings({ finding: ids, fix }: Values<typeof fields>, { statements }: ControlStatements) {
  if (ids.length > 0 && !fix)
    throw new OperatorError('Give --fix to repair these findings, or no finding', { usage: true });
  const { findFinding } = await import('./accepted-findings.ts');
  for (const id of ids) await findFinding(statements, id);
}

const accept = defineChange({
  name: 'doctor accept',
  description:
    'let a finding of the last report of doctor stay: it makes doctor fail no more, and --fix leaves it alone',
  fields: {
    finding: argument('finding', { description: 'what doctor prints in brackets' }),
    reason: requiredOption('<text>', 'why it may stay; doctor shows it beside the finding', { parse: parseReason }),
  },
  examples: ['doctor accept 3f2a9c1b --reason "shared with the data warehouse"'],
  help: `A finding whose text changes, such as the number of tenants in it, is another one.
Take it back: npx backoffice doctor reopen <finding>`,
  access: 'statements',
  effect: 'changes',
  async change({ finding: id, reason }, { installation }, isDryRun) {
    const { acceptFinding } = await import('./accepted-findings.ts');
    const finding = await acceptFinding(installation.statements, id, reason, isDryRun);
    const text = `${finding.tenant ?? finding.server}: ${finding.problem}`;
    return { document: { id, ...finding, reason }, plan: `Would be accepted: ${text}`, done: `Accepted: ${text}` };
  },
});

const reopen = defineChange({
  name: 'doctor reopen',
  description: 'take the acceptance of a finding back',
  fields: { finding: argument('finding', { description: 'what doctor prints in brackets' }) },
  examples: ['doctor reopen 3f2a9c1b'],
  access: 'statements',
  effect: 'changes',
  async change({ finding: id }, { installation }, isDryRun) {
    const { reopenFinding } = await import('./accepted-findings.ts');
    const finding = await reopenFinding(installation.statements, id, isDryRun);
    const text = `${finding.tenant ?? finding.server}: ${finding.problem}`;
    return { document: { id, ...finding }, plan: `Would be open again: ${text}`, done: `Open again: ${text}` };
  },
});

export const operations = [doctor, accept, reopen];

function parseReason(reason: string): string {
  if (reason.trim() === '') throw new OperatorError('Say why it may stay.');
  return reason;
}
