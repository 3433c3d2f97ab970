import type { Command } from 'commander';
import { withInstallation } from './command.ts';
import { jsonOption, type OutputOptions, printResult } from './output.ts';
import { printList } from './print-list.ts';
import { fieldsText } from './text-table.ts';

/** Adds the commands of `client`: programs that use legacy tokens. */
export function addClientCommands(program: Command): void {
  const client = program.command('client').description('programs that use legacy tokens');
  client
    .command('add')
    .description('add a program that acts for a user with legacy tokens; its secret is shown only once')
    .argument('<slug>')
    .argument('<email>')
    .requiredOption('--name <name>', 'name of the program')
    .option(...jsonOption)
    .action(
      withInstallation(async (installation, slug: string, email: string, options: OutputOptions & { name: string }) => {
        const { addClient } = await import('../tenants/clients.ts');
        const added = await addClient(installation, slug, email, options.name);
        printResult(options, added, () => fieldsText(added));
      }),
    );
  client
    .command('list')
    .description('list the API clients of a tenant, with the number of their tokens and uses')
    .argument('<slug>')
    .option(...jsonOption)
    .action(
      withInstallation(async (installation, slug: string, options: OutputOptions) => {
        const { listClients } = await import('../tenants/clients.ts');
        const clients = await listClients(installation, slug);
        printList(options, clients, { row: client => client, name: ({ id }) => id, empty: 'No API clients.' });
      }),
    );
  client
    .command('revoke')
    .description('refuse an API client and every token that was issued to it')
    .argument('<slug>')
    .argument('<id>')
    .option(...jsonOption)
    .action(
      withInstallation(async (installation, slug: string, id: string, options: OutputOptions) => {
        const { revokeClient } = await import('../tenants/clients.ts');
        await revokeClient(installation, slug, id);
        printResult(options, { id, state: 'revoked' }, () => `Client ${id} and its tokens are revoked.`);
      }),
    );
}
