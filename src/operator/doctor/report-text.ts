import { colour } from '../command/text-table.ts';
import { countText } from '../command/texts.ts';
import type { DoctorReport, ReportedFinding } from './reports.ts';

export function reportText({ servers, tenants, findings }: DoctorReport): string {
  const checked = `Checked ${countText(tenants, 'tenant')} on ${countText(servers, 'server')}`;
  if (findings.length === 0) return `${checked}: nothing is wrong.`;
  const fixed = findings.filter(finding => finding.fixed).length;
  const accepted = findings.filter(finding => finding.accepted && !finding.fixed).length;
  const counts = [countText(findings.length - fixed - accepted, 'open problem'), `${fixed} fixed`];
  if (accepted > 0) counts.push(`${accepted} accepted`);
  return `${findings.map(findingText).join('\n')}\n\n${checked}: ${counts.join(', ')}.`;
}

export function findingText({
  id,
  server,
  tenant,
  severity,
  problem,
  remedy,
  fixed,
  accepted,
}: ReportedFinding): string {
  const kind = accepted ? 'accepted: ' : severity === 'warning' ? 'warning: ' : '';
  const first = `${tenant ?? server}: ${kind}${problem} [${id}]`;
  if (fixed) return `${first}\n  fixed`;
  if (!accepted) return `${first}\n  → ${remedy}`;
  const { by, at, reason } = accepted;
  return colour('dim', `${first}\n  by ${by} on ${at.slice(0, 10)}: ${reason}`);
}
