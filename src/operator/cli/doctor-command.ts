import type { Command } from 'commander';
import { countText } from '../count-text.ts';
import type { Diagnosis } from '../doctor/doctor.ts';
import { withInstallation } from './command.ts';
import { jsonOption, type OutputOptions, printResult, showsProgress } from './output.ts';
import { Progress } from './progress.ts';

/** Adds `doctor`: checks the whole installation and prints what is wrong. */
export function addDoctorCommand(program: Command): void {
  program
    .command('doctor')
    .description('find orphans, stuck states, wrong privileges, bad keys and secrets, schema drift')
    .option(
      '--fix',
      'make repairs without risk: correct login roles and privileges, drop leftover warm databases and old templates',
    )
    .option('--full', 'check also the tenant databases that did not change since nothing was wrong inside')
    .option(...jsonOption)
    .addHelpText(
      'after',
      '\nExit code: 0 when nothing is wrong, everything was fixed, or only warnings are left; otherwise 1.',
    )
    .action(
      withInstallation(
        async (installation, { fix, full, ...options }: OutputOptions & { fix?: boolean; full?: boolean }) => {
          const { readConfig } = await import('../../config.ts');
          const { diagnose } = await import('../doctor/doctor.ts');
          const progress = showsProgress() ? new Progress() : undefined;
          const diagnosis = await diagnose(installation, {
            fix,
            full,
            connectionBudget: readConfig().connectionBudget,
            onStart: total => progress?.start(total),
            onTenant: hasFindings => progress?.advance(hasFindings),
          }).finally(() => progress?.end());
          const healthy = diagnosis.findings.every(({ fixed, severity }) => fixed || severity === 'warning');
          printResult(options, documentOf(diagnosis, healthy), () => textOf(diagnosis));
          return healthy;
        },
      ),
    );
}

/** Leaves out the statements, which may hold a password. */
function documentOf({ servers, tenants, unchanged, findings }: Diagnosis, healthy: boolean) {
  return { healthy, servers, tenants, unchanged, findings: findings.map(({ repair, ...finding }) => finding) };
}

function textOf({ servers, tenants, unchanged, findings }: Diagnosis): string {
  const left = unchanged > 0 ? `, ${unchanged} unchanged since the last check` : '';
  const checked = `Checked ${countText(tenants, 'tenant')} on ${countText(servers, 'server')}${left}`;
  if (findings.length === 0) return `${checked}: nothing is wrong.`;
  const lines = findings.map(
    ({ server, tenant, severity, problem, remedy, fixed }) =>
      `${tenant ?? server}: ${severity === 'warning' ? 'warning: ' : ''}${problem}\n` +
      `  ${fixed ? 'fixed' : `→ ${remedy}`}`,
  );
  const fixed = findings.filter(finding => finding.fixed).length;
  return `${lines.join('\n')}\n\n${checked}: ${countText(findings.length - fixed, 'open problem')}, ${fixed} fixed.`;
}
