import type { Command } from 'commander';
import type { Diagnosis } from '../doctor/doctor.ts';
import { withInstallation } from './command.ts';
import { jsonOption, type OutputOptions, printResult, showsProgress } from './output.ts';
import { Progress } from './progress.ts';

/** Adds `doctor`: checks the whole installation and prints what is wrong. */
export function addDoctorCommand(tenant: Command): void {
  tenant
    .command('doctor')
    .description('find orphans, stuck states, wrong privileges, bad keys and secrets, schema drift')
    .option(
      '--fix',
      'make repairs without risk: correct login roles and privileges, drop leftover warm databases and old templates',
    )
    .option(...jsonOption)
    .addHelpText(
      'after',
      '\nExit code: 0 when nothing is wrong, everything was fixed, or only warnings are left; otherwise 1.',
    )
    .action(
      withInstallation(async (installation, { fix, ...options }: OutputOptions & { fix?: boolean }) => {
        const { diagnose } = await import('../doctor/doctor.ts');
        const progress = showsProgress() ? new Progress() : undefined;
        const diagnosis = await diagnose(installation, {
          fix,
          onStart: total => progress?.start(total),
          onTenant: hasFindings => progress?.advance(hasFindings),
        }).finally(() => progress?.end());
        const healthy = diagnosis.findings.every(({ fixed, severity }) => fixed || severity === 'warning');
        printResult(options, documentOf(diagnosis, healthy), () => textOf(diagnosis));
        return healthy;
      }),
    );
}

/** Leaves out the statements, which may hold a password. */
function documentOf({ servers, tenants, findings }: Diagnosis, healthy: boolean) {
  return { healthy, servers, tenants, findings: findings.map(({ repair, ...finding }) => finding) };
}

function textOf({ servers, tenants, findings }: Diagnosis): string {
  const checked = `Checked ${count(tenants, 'tenant')} on ${count(servers, 'server')}`;
  if (findings.length === 0) return `${checked}: nothing is wrong.`;
  const lines = findings.map(
    ({ server, tenant, severity, problem, remedy, fixed }) =>
      `${tenant ?? server}: ${severity === 'warning' ? 'warning: ' : ''}${problem}\n` +
      `  ${fixed ? 'fixed' : `→ ${remedy}`}`,
  );
  const fixed = findings.filter(finding => finding.fixed).length;
  return `${lines.join('\n')}\n\n${checked}: ${count(findings.length - fixed, 'open problem')}, ${fixed} fixed.`;
}

function count(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`;
}
