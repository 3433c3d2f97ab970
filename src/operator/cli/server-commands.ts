import { type Command, InvalidArgumentError } from 'commander';
import { addServer, listServers } from '../tenants/servers.ts';
import { printJson, printTable, readStdin, withInstallation } from './command.ts';

/** `server`: where tenants are placed. */
export function addServerCommands(server: Command): void {
  server
    .command('add')
    .description(
      'make a PostgreSQL server known; its postgresql:// URL is read from stdin, because it holds a password',
    )
    .argument('<name>')
    .option('--capacity <tenants>', 'most tenants placed there without being asked for by name', atLeastZero)
    .option('--json', 'one JSON document on stdout')
    .action(
      withInstallation(
        async (installation, name: string, { capacity, json }: { capacity?: number; json?: boolean }) => {
          await addServer(installation, name, (await readStdin()).trim(), capacity ?? null);
          if (json) printJson({ name, capacity: capacity ?? null });
          else process.stdout.write(`Tenants can be placed on ${name} now.\n`);
        },
      ),
    );
  server
    .command('list')
    .description('the servers and how many tenants are on each')
    .option('--json', 'one JSON document on stdout')
    .action(
      withInstallation(async (installation, { json }: { json?: boolean }) => {
        const servers = await listServers(installation);
        if (json) printJson(servers);
        else
          printTable(
            servers.map(({ capacity, ...rest }) => ({ ...rest, capacity: capacity ?? 'no limit' })),
            'No servers.',
          );
      }),
    );
}

function atLeastZero(value: string): number {
  if (!/^\d{1,9}$/.test(value)) throw new InvalidArgumentError('a whole number is needed');
  return Number(value);
}
