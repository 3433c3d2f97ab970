import { type Command, InvalidArgumentError } from 'commander';
import { withInstallation, withStatements } from './command.ts';
import { jsonOption, type OutputOptions, printResult } from './output.ts';
import { readSecret } from './read-secret.ts';
import { tableText } from './text-table.ts';

/** Adds the commands of `server`: the PostgreSQL servers that tenants are placed on. */
export function addServerCommands(server: Command): void {
  server
    .command('add')
    .description('add a PostgreSQL server; its postgresql:// URL is read from stdin, because it holds a password')
    .argument('<name>')
    .option(
      '--capacity <tenants>',
      'maximum number of tenants that are placed there automatically; provision --server is not limited by it',
      parseCapacity,
    )
    .option(...jsonOption)
    .action(
      withInstallation(async (installation, name: string, options: OutputOptions & { capacity?: number }) => {
        const { addServer } = await import('../tenants/servers.ts');
        const capacity = options.capacity ?? null;
        await addServer(installation, name, (await readSecret('URL of the server')).trim(), capacity);
        printResult(options, { name, capacity }, () => `Added ${name}. Tenants can now be placed on it.`);
      }),
    );
  server
    .command('list')
    .description('list the servers, with the tenants and the connections of each')
    .option(...jsonOption)
    .action(
      withStatements(async (control, options: OutputOptions) => {
        const { connectionsByServer } = await import('../tenants/processes.ts');
        const { listServers } = await import('../tenants/read-servers.ts');
        const connections = await connectionsByServer(control);
        const none = { held: 0, granted: 0, wanted: 0 };
        const servers = (await listServers(control)).map(server => ({
          ...server,
          ...(connections.get(server.name) ?? none),
        }));
        printResult(options, servers, () =>
          tableText(
            servers.map(({ capacity, ...rest }) => ({ ...rest, capacity: capacity ?? 'no limit' })),
            'There is no server.',
          ),
        );
      }),
    );
}

function parseCapacity(value: string): number {
  if (!/^\d{1,9}$/.test(value)) throw new InvalidArgumentError('Give a whole number.');
  return Number(value);
}
