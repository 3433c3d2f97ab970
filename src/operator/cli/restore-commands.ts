import type { Command } from 'commander';
import { OperatorError } from '../../operator-error.ts';
import type { SwapResult } from '../restore/swap/swap.ts';
import { findTenant } from '../tenants/tenants.ts';
import { withInstallation, withStatements } from './command.ts';
import { confirmName } from './confirm-name.ts';
import { jsonOption, type OutputOptions, printResult } from './output.ts';
import { type RestoredMoment, restoreData } from './restore-data.ts';
import { withSpinner } from './spinner.ts';
import { StepSpinner } from './step-spinner.ts';
import { fieldsText, tableText } from './text-table.ts';

interface RestoreOptions extends OutputOptions, RestoredMoment {
  to?: string;
  lost?: boolean;
}

const restoreHelp = `
The new tenant is suspended and isolated, and has no users and legacy clients. restore diff then shows what was added,
changed and removed since, restore swap puts the restored data in place, and restore back undoes that.`;

/** Adds `restore` and its subcommands. */
export function addRestoreCommand(program: Command): void {
  const restore = program
    .command('restore')
    .description('bring a deleted tenant back into service, or restore earlier data of a tenant beside it')
    .argument('<slug>')
    .option('--archive <id>', 'the archive to restore, or the beginning of its id (default: the newest)')
    .option('--at <time>', 'the moment to restore, with its zone, such as 2026-11-21T14:05:00Z; needs backup base')
    .option('--to <new-slug>', 'slug of the new tenant that gets the data')
    .option('--lost', 'the server has lost the database of the tenant: restore it in a new one, and serve it')
    .option(...jsonOption)
    .addHelpText('after', restoreHelp)
    .action(async (slug: string, options: RestoreOptions, command: Command) => {
      const { at, archive, to, lost } = options;
      if (lost) return restoreLost(slug, options, command);
      if (at === undefined && archive === undefined && to === undefined) return undelete(slug, options, command);
      return restoreAside(slug, options, command);
    });
  addDiff(restore);
  addSwap(restore, 'swap', true, 'put the restored data of a tenant in place; its requests wait meanwhile');
  addSwap(restore, 'back', false, 'undo swap: give a tenant its former data back');
}

const undelete = withStatements(async (control, slug: string, options: OutputOptions, _: Command) => {
  const { changeState } = await import('../tenants/transitions.ts');
  const { guid, status } = await changeState(control, slug, 'restore');
  printResult(options, { slug, guid, status }, () => `${slug} is ${status}.`);
});

const restoreAside = withInstallation(async (installation, slug: string, options: RestoreOptions, _: Command) => {
  const { to } = options;
  if (to === undefined) throw new OperatorError('Give the slug of the new tenant: --to <new-slug>', { usage: true });
  const { createSideTenant, requireFreeSlug } = await import('../restore/side-tenant.ts');
  await requireFreeSlug(installation, to);
  const source = await findTenant(installation, slug);
  const document = await restoreData(installation, source, options, data =>
    createSideTenant(installation, source, to, data),
  );
  printResult(options, { ...document, source: slug }, () =>
    [fieldsText(document), '', `Compare it with ${slug}: npx backoffice restore diff ${to}`].join('\n'),
  );
});

const restoreLost = withInstallation(async (installation, slug: string, options: RestoreOptions, _: Command) => {
  if (options.to !== undefined) throw new OperatorError('Give either --lost or --to', { usage: true });
  const { requireLost, restoreLostTenant } = await import('../restore/lost/restore-lost-tenant.ts');
  const source = await findTenant(installation, slug);
  await requireLost(installation, source);
  const document = await restoreData(installation, source, options, data =>
    restoreLostTenant(installation, slug, data),
  );
  printResult(options, document, () => fieldsText(document));
});

function addDiff(restore: Command): void {
  restore
    .command('diff')
    .description('show the rows that a tenant has added, changed and removed since its restored data')
    .argument('<slug>', 'the tenant, or the restored tenant beside it')
    .option(...jsonOption)
    .action(
      withInstallation(async (installation, slug: string, options: OutputOptions) => {
        const { compareTenants } = await import('../restore/compare-tenants.ts');
        const { findRestoredPair } = await import('../restore/find-side.ts');
        const { tenant, side, restoredFrom, isSwapped } = await findRestoredPair(installation, slug);
        const [now, before] = isSwapped ? [side, tenant] : [tenant, side];
        const comparing = compareTenants(installation, now, before);
        const tables = await withSpinner(`comparing ${tenant.slug} with ${side.slug}`, comparing);
        const document = { tenant: tenant.slug, side: side.slug, restoredFrom, isSwapped, tables };
        printResult(options, document, () =>
          tableText(
            tables.map(({ keys: _, ...counts }) => counts),
            `${tenant.slug} and ${side.slug} have the same data.`,
          ),
        );
      }),
    );
}

function addSwap(restore: Command, name: string, toRestored: boolean, description: string): void {
  restore
    .command(name)
    .description(description)
    .argument('<slug>', 'the tenant, or the restored tenant beside it')
    .option('--yes', 'do not ask for confirmation')
    .option(...jsonOption)
    .action(
      withInstallation(async (installation, slug: string, options: OutputOptions & { yes?: boolean }) => {
        const { findRestoredPair } = await import('../restore/find-side.ts');
        const { createFenceGuard } = await import('../move/fence-guard.ts');
        const { swapTenants } = await import('../restore/swap/swap.ts');
        const { tenant, side, restoredFrom } = await findRestoredPair(installation, slug);
        const which = toRestored ? `its data of ${restoredFrom}` : 'its former data';
        await confirmName(tenant.slug, `gets ${which}; ${side.slug} keeps what it has now`, options.yes);
        const spinner = new StepSpinner();
        const observers = { onStep: spinner.step, guard: createFenceGuard('swap') };
        const result = await swapTenants(installation, slug, toRestored, observers).finally(spinner.end);
        printResult(options, result, () => swapText(result));
      }),
    );
}

function swapText({ tenant, side, isSwapped, pauseMs }: SwapResult): string {
  const waited = `Its requests waited for ${Math.round(pauseMs)} ms.`;
  return isSwapped
    ? `${tenant} has the restored data. ${waited} ${side} keeps the former data; undo it: npx backoffice restore back ${tenant}`
    : `${tenant} has its former data. ${waited}`;
}
