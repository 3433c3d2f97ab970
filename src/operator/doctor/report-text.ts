import { countText } from '../command/texts.ts';
import { named } from '../databases/copy/foreign-objects.ts';
import type { DoctorReport, ReportedFinding, ServerMeasures } from './reports.ts';

export function reportText({ servers, tenants, measured, findings }: DoctorReport): string {
  const checked = `Checked ${countText(tenants, 'tenant')} on ${countText(servers, 'server')}`;
  const leftOut = measured.flatMap(leftOutText);
  if (findings.length === 0) return [`${checked}: nothing is wrong.`, ...leftOut].join('\n');

  const fixed = findings.filter(finding => finding.fixed).length;
  const open = countText(findings.length - fixed, 'open problem');

  const summary = [`${checked}: ${open}, ${fixed} fixed.`, ...leftOut].join('\n');
  return `${findings.map(findingText).join('\n')}\n\n${summary}`;
}

/** Names the databases of a server that were not looked into; nothing without any. */
function leftOutText({ server, notEntered }: ServerMeasures): string[] {
  if (notEntered.length === 0) return [];

  return [
    `${server}: not looked into, because the login of the commands may not connect: ${named(notEntered)}.`,
  ];
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
