import type { Command } from 'commander';
import { type Diagnosis, diagnose } from '../doctor/doctor.ts';
import { printJson, withInstallation } from './command.ts';
import { Progress } from './progress.ts';

/** `doctor`: what is wrong anywhere. */
export function addDoctorCommand(tenant: Command): void {
  tenant
    .command('doctor')
    .description('what is wrong anywhere: orphans, stuck states, wrong rights, keys and secrets, drift of the schema')
    .option(
      '--fix',
      'mend what can be mended without a risk: rights; and drop what nobody will use: warm databases, templates of other builds',
    )
    .option('--json', 'one JSON document on stdout')
    .addHelpText('after', '\nExit 1 when something is wrong, and still is at the end.')
    .action(
      withInstallation(async (installation, { fix, json }: { fix?: boolean; json?: boolean }) => {
        const progress = process.stderr.isTTY ? new Progress() : undefined;
        const diagnosis = await diagnose(installation, {
          fix,
          onStart: total => progress?.start(total),
          onTenant: wrong => progress?.advance(wrong),
        }).finally(() => progress?.end());
        const healthy = diagnosis.findings.every(({ fixed }) => fixed);
        if (json) printJson(documentOf(diagnosis, healthy));
        else print(diagnosis);
        return healthy;
      }),
    );
}

/** Without the statements, which may hold a password. */
function documentOf({ servers, tenants, findings }: Diagnosis, healthy: boolean) {
  return { healthy, servers, tenants, findings: findings.map(({ repair, ...finding }) => finding) };
}

function print({ servers, tenants, findings }: Diagnosis): void {
  const write = (line: string) => process.stdout.write(`${line}\n`);
  for (const { server, tenant, problem, remedy, fixed } of findings) {
    write(`${tenant ?? server}: ${problem}\n  ${fixed ? 'mended' : `→ ${remedy}`}`);
  }
  const looked = `${tenants} tenants on ${servers} ${servers === 1 ? 'server' : 'servers'}`;
  const left = findings.filter(({ fixed }) => !fixed).length;
  if (findings.length === 0) write(`Nothing is wrong with ${looked}.`);
  else
    write(`\nOf ${looked}: ${left} ${left === 1 ? 'thing is' : 'things are'} wrong, ${findings.length - left} mended.`);
}
