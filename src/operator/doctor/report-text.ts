import { countText } from '../command/texts.ts';
import type { DoctorReport, ReportedFinding } from './reports.ts';

export function reportText({ servers, tenants, findings }: DoctorReport): string {
  const checked = `Checked ${countText(tenants, 'tenant')} on ${countText(servers, 'server')}`;
  if (findings.length === 0) return `${checked}: nothing is wrong.`;

  const fixed = findings.filter(finding => finding.fixed).length;
  const open = countText(findings.length - fixed, 'open problem');

  return `${findings.map(findingText).join('\n')}\n\n${checked}: ${open}, ${fixed} fixed.`;
}

export function findingText({
  id,
  server,
  tenant,
  severity,
  problem,
  remedy,
  fixed,
}: ReportedFinding): string {
  const first = `${tenant ?? server}: ${severity === 'warning' ? 'warning: ' : ''}${problem} [${id}]`;
  return `${first}\n  ${fixed ? 'fixed' : `→ ${remedy}`}`;
}
