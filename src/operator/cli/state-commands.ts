import type { Command } from 'commander';
import { changeChannel, changeTopics } from '../../control/change-topics.ts';
import { readTenant, summarise } from '../tenants/read-tenants.ts';
import type { Transition } from '../tenants/transitions.ts';
import { withInstallation, withStatements } from './command.ts';
import { confirmSlug } from './confirm-slug.ts';
import { jsonOption, type OutputOptions, printResult } from './output.ts';
import { withSpinner } from './spinner.ts';
import { fieldsText } from './text-table.ts';

interface ConfirmOptions extends OutputOptions {
  yes?: boolean;
}

const descriptions: Record<Transition, string> = {
  suspend: 'stop serving a tenant, in every process within a second',
  resume: 'serve a suspended tenant again',
  delete: 'take a tenant out of service and keep its data until it is purged',
  restore: 'bring a deleted tenant back into service',
};

/** Adds the commands on a provisioned tenant: its states, `refresh`, `clone` and `purge`. */
export function addStateCommands(tenant: Command): void {
  for (const transition of Object.keys(descriptions) as Transition[]) addTransition(tenant, transition);
  addRefresh(tenant);
  addClone(tenant);
  addPurge(tenant);
}

function addTransition(tenant: Command, transition: Transition): void {
  const command = tenant.command(transition).description(descriptions[transition]).argument('<slug>');
  if (transition === 'delete') command.option('--yes', 'do not ask for confirmation');
  command.option(...jsonOption).action(
    withStatements(async (control, slug: string, options: ConfirmOptions) => {
      const { changeState, requireTransition } = await import('../tenants/transitions.ts');
      if (transition === 'delete') {
        await requireTransition(control, slug, transition);
        await confirmSlug(slug, 'will not be served any more', options.yes);
      }
      const { guid, status } = await changeState(control, slug, transition);
      printResult(options, { slug, guid, status }, () => `${slug} is ${status}.`);
    }),
  );
}

function addRefresh(tenant: Command): void {
  tenant
    .command('refresh')
    .description('make every process read the data of a tenant again, after a change outside the service (psql …)')
    .argument('<slug>')
    .option(...jsonOption)
    .action(
      withStatements(async (control, slug: string, options: OutputOptions) => {
        const { guid } = await readTenant(control, slug);
        await control.statements.execute(`select pg_notify('${changeChannel}', ?)`, [
          `${changeTopics.responses}:${guid}`,
        ]);
        printResult(options, { slug, guid }, () => `Every process reads the data of ${slug} again.`);
      }),
    );
}

function addClone(tenant: Command): void {
  tenant
    .command('clone')
    .description(
      'copy a tenant to a new slug, with its own key and login role; sessions and API clients are not copied',
    )
    .argument('<slug>')
    .argument('<new-slug>')
    .option(...jsonOption)
    .action(
      withInstallation(async (installation, slug: string, newSlug: string, options: OutputOptions) => {
        const { createPasswords } = await import('../../auth/passwords.ts');
        const { cloneTenant } = await import('../provisioning/clone.ts');
        const clone = cloneTenant(installation, createPasswords(), slug, newSlug);
        const summary = summarise(await withSpinner(`cloning ${slug}`, clone));
        printResult(options, summary, () => fieldsText(summary));
      }),
    );
}

function addPurge(tenant: Command): void {
  tenant
    .command('purge')
    .description('remove a deleted tenant permanently: database, login role, keys, users, sessions')
    .argument('<slug>')
    .option('--yes', 'do not ask for confirmation')
    .option(...jsonOption)
    .action(
      withInstallation(async (installation, slug: string, options: ConfirmOptions) => {
        const { purgeTenant, requirePurgeable } = await import('../tenants/tenant-states.ts');
        const { findTenant } = await import('../tenants/tenants.ts');
        requirePurgeable(await findTenant(installation, slug));
        await confirmSlug(slug, 'and all of its data will be removed permanently', options.yes);
        await withSpinner(`purging ${slug}`, purgeTenant(installation, slug));
        printResult(options, { slug, status: 'purged' }, () => `${slug} is purged.`);
      }),
    );
}
