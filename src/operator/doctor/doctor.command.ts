import { defineOperation } from '../command/operation.ts';
import { argument, flag, requiredOption } from '../command/operation-fields.ts';

const doctor = defineOperation({
  name: 'doctor',
  description: 'find orphans, stuck states, wrong privileges, bad keys and secrets, schema drift',
  fields: {
    fix: flag(
      'make repairs without risk: correct login roles and privileges, drop leftover warm databases and old templates',
    ),
    full: flag('check also the tenant databases that did not change since nothing was wrong inside'),
  },
  examples: ['doctor', 'doctor --fix'],
  help: `Exit code: 0 when nothing is wrong, everything was fixed, or only warnings and accepted findings are left;
otherwise 1.`,
  access: 'installation',
  effect: 'reads',
  changingFields: ['fix'],
  async run({ fix, full }, { installation, output, progress }) {
    const { readConfig } = await import('../../config/config.ts');
    const { reportText } = await import('./report-text.ts');
    const { diagnose } = await import('./doctor.ts');
    const { storeReport } = await import('./reports.ts');
    const report = await diagnose(installation, {
      fix,
      full,
      connectionBudget: readConfig().connectionBudget,
      onStart: total => progress.start(total),
      onTenant: hasFindings => progress.advance(hasFindings),
    });
    await storeReport(installation.statements, report);
    output.result(report, () => reportText(report));
    return report.healthy;
  },
});

const accept = defineOperation({
  name: 'doctor accept',
  description:
    'let a finding of the last report of doctor stay: it makes doctor fail no more, and --fix leaves it alone',
  fields: {
    finding: argument('finding', { description: 'what doctor prints in brackets' }),
    reason: requiredOption('<text>', 'why it may stay; doctor shows it beside the finding'),
  },
  examples: ['doctor accept 3f2a9c1b --reason "shared with the data warehouse"'],
  help: `A finding whose text changes, such as the number of tenants in it, is another one.
Take it back: npx backoffice doctor reopen <finding>`,
  access: 'statements',
  effect: 'changes',
  async plan({ finding: id, reason }, { installation }) {
    const { findFinding } = await import('./reports.ts');
    const finding = await findFinding(installation.statements, id);
    return {
      document: { id, ...finding, reason, state: 'planned' },
      text: () => `Would be accepted: ${finding.tenant ?? finding.server}: ${finding.problem}`,
    };
  },
  async run({ finding: id, reason }, { installation, output }) {
    const { acceptFinding } = await import('./reports.ts');
    const finding = await acceptFinding(installation.statements, id, reason);
    output.result(
      { id, ...finding, reason },
      () => `Accepted: ${finding.tenant ?? finding.server}: ${finding.problem}`,
    );
  },
});

const reopen = defineOperation({
  name: 'doctor reopen',
  description: 'take the acceptance of a finding back',
  fields: { finding: argument('finding', { description: 'what doctor prints in brackets' }) },
  examples: ['doctor reopen 3f2a9c1b'],
  access: 'statements',
  effect: 'changes',
  async plan({ finding: id }, { installation }) {
    const { findAccepted } = await import('./reports.ts');
    const finding = await findAccepted(installation.statements, id);
    return {
      document: { id, ...finding, state: 'planned' },
      text: () => `Would be open again: ${finding.tenant ?? finding.server}: ${finding.problem}`,
    };
  },
  async run({ finding: id }, { installation, output }) {
    const { reopenFinding } = await import('./reports.ts');
    const finding = await reopenFinding(installation.statements, id);
    output.result({ id, ...finding }, () => `Open again: ${finding.tenant ?? finding.server}: ${finding.problem}`);
  },
});

export const operations = [doctor, accept, reopen];
