import { countText } from '../command/count-text.ts';
import { defineOperation } from '../command/operation.ts';
import { flag } from '../command/operation-fields.ts';
import type { Diagnosis } from './doctor.ts';

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
  help: 'Exit code: 0 when nothing is wrong, everything was fixed, or only warnings are left; otherwise 1.',
  access: 'installation',
  effect: 'reads',
  changingFields: ['fix'],
  async run({ fix, full }, { installation, output, progress }) {
    const { readConfig } = await import('../../config/config.ts');
    const { diagnose } = await import('./doctor.ts');
    const diagnosis = await diagnose(installation, {
      fix,
      full,
      connectionBudget: readConfig().connectionBudget,
      onStart: total => progress.start(total),
      onTenant: hasFindings => progress.advance(hasFindings),
    });
    const healthy = diagnosis.findings.every(({ fixed, severity }) => fixed || severity === 'warning');
    output.result(documentOf(diagnosis, healthy), () => textOf(diagnosis));
    return healthy;
  },
});

export const operations = [doctor];

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
