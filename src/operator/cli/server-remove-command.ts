import type { Command } from 'commander';
import { countText } from '../count-text.ts';
import type { ServerRemoval } from '../tenants/remove-server.ts';
import { withInstallation } from './command.ts';
import { confirmName } from './confirm-name.ts';
import { dryRunOption, jsonOption, type OutputOptions, printResult } from './output.ts';

interface RemoveOptions extends OutputOptions {
  lost?: boolean;
  dryRun?: boolean;
  yes?: boolean;
}

/** Adds `server remove`. */
export function addRemoveServer(server: Command): void {
  server
    .command('remove')
    .description('remove a server on which no tenant is, with its warm databases and templates; drain it first')
    .argument('<name>')
    .option('--lost', 'the server is gone: drop nothing on it')
    .option(...dryRunOption)
    .option('--yes', 'do not ask for confirmation')
    .option(...jsonOption)
    .action(
      withInstallation(async (installation, name: string, options: RemoveOptions) => {
        const { planServerRemoval, removeServer } = await import('../tenants/remove-server.ts');
        const { lost = false } = options;
        const plan = await planServerRemoval(installation, name, lost);
        if (options.dryRun) {
          printResult(options, { ...plan, state: 'planned' }, () => planText(plan, 'would be removed'));
          return;
        }
        await confirmName(name, `will be removed. ${lossText(plan)}`.replace(/\.$/, ''), options.yes, 'name');
        const removed = await removeServer(installation, name, lost);
        printResult(options, { ...removed, state: 'removed' }, () => planText(removed, 'is removed'));
      }),
    );
}

function planText(removal: ServerRemoval, verb: string): string {
  return `${removal.name} ${verb}. ${lossText(removal)}`;
}

function lossText({ warmDatabases, moves, formerTenants, left }: ServerRemoval): string {
  const warm = countText(warmDatabases, 'warm database');
  return [
    left === null ? 'Nothing is dropped on it.' : `With it: ${warm}, and the templates.`,
    moves > 0 ? `${countText(moves, 'finished move')} from or to it are no longer listed.` : '',
    formerTenants > 0
      ? `restore --at no longer finds the time that ${countText(formerTenants, 'tenant')} spent there.`
      : '',
    left && left.length > 0 ? `These databases stay there, and belong to no tenant: ${left.join(', ')}.` : '',
  ]
    .filter(Boolean)
    .join(' ');
}
