import type { Command } from 'commander';
import { changeChannel, changeTopics } from '../../control/change-topics.ts';
import { readTenant } from '../tenants/read-tenants.ts';
import type { Transition } from '../tenants/transitions.ts';
import { withStatements } from './command.ts';
import { confirmName } from './confirm-name.ts';
import { jsonOption, type OutputOptions, printResult } from './output.ts';

interface ConfirmOptions extends OutputOptions {
  yes?: boolean;
}

/** `restore` does more than this: see `addRestoreCommand`. */
const descriptions: Record<Exclude<Transition, 'restore'>, string> = {
  suspend: 'stop serving a tenant, in every process within a second',
  resume: 'serve a suspended tenant again',
  delete: 'take a tenant out of service and keep its data until it is purged',
};

/** Adds `suspend`. */
export const addSuspend = (program: Command): void => addTransition(program, 'suspend');

/** Adds `resume`. */
export const addResume = (program: Command): void => addTransition(program, 'resume');

/** Adds `delete`. */
export const addDelete = (program: Command): void => addTransition(program, 'delete');

function addTransition(program: Command, transition: keyof typeof descriptions): void {
  const command = program.command(transition).description(descriptions[transition]).argument('<slug>');
  if (transition === 'delete') command.option('--yes', 'do not ask for confirmation');
  command.option(...jsonOption).action(
    withStatements(async (control, slug: string, options: ConfirmOptions) => {
      const { changeState, requireTransition } = await import('../tenants/transitions.ts');
      if (transition === 'delete') {
        await requireTransition(control, slug, transition);
        await confirmName(slug, 'will not be served any more', options.yes);
      }
      const { guid, status } = await changeState(control, slug, transition);
      printResult(options, { slug, guid, status }, () => `${slug} is ${status}.`);
    }),
  );
}

/** Adds `isolate`. */
export function addIsolate(program: Command): void {
  program
    .command('isolate')
    .description('send no mail of a tenant, and refuse its legacy clients, as with every clone and restored tenant')
    .argument('<slug>')
    .option('--off', 'send mail again, and accept its legacy clients')
    .option(...jsonOption)
    .action(
      withStatements(async (control, slug: string, options: OutputOptions & { off?: boolean }) => {
        const { isolate } = await import('../tenants/transitions.ts');
        const { guid, isolated } = await isolate(control, slug, !options.off);
        const state = isolated
          ? 'is isolated: it sends no mail, and its legacy clients are refused'
          : 'is not isolated';
        printResult(options, { slug, guid, isolated }, () => `${slug} ${state}.`);
      }),
    );
}

/** Adds `refresh`. */
export function addRefresh(program: Command): void {
  program
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
