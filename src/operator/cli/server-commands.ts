import { type Command, InvalidArgumentError } from 'commander';
import { withInstallation, withStatements } from './command.ts';
import { addMoveOptions, type MoveOptions, observe } from './move-commands.ts';
import { jsonOption, type OutputOptions, printPart, printResult, printText } from './output.ts';
import { printList } from './print-list.ts';
import { readSecret } from './read-secret.ts';
import { addRemoveServer } from './server-remove-command.ts';
import { tableText } from './text-table.ts';

/** Adds the commands of `server`: the PostgreSQL servers that tenants are placed on. */
export function addServerCommands(program: Command): void {
  const server = program.command('server').description('PostgreSQL servers that tenants are placed on');
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
        printList(options, servers, {
          row: ({ capacity, ...rest }) => ({ ...rest, capacity: capacity ?? 'no limit' }),
          name: ({ name }) => name,
          empty: 'There is no server.',
        });
      }),
    );
  addSet(server);
  addRemoveServer(server);
  addServerMoves(server);
}

function addSet(server: Command): void {
  server
    .command('set')
    .description('change the number of tenants that are placed on a server automatically')
    .argument('<name>')
    .requiredOption('--capacity <tenants>', 'maximum number of tenants, or none for no limit', parseCapacityOrNone)
    .option(...jsonOption)
    .action(
      withStatements(async (control, name: string, options: OutputOptions & { capacity: number | 'none' }) => {
        const { setCapacity } = await import('../tenants/read-servers.ts');
        const capacity = options.capacity === 'none' ? null : options.capacity;
        await setCapacity(control, name, capacity);
        printResult(options, { name, capacity }, () => `${name} takes ${capacity ?? 'any number of'} tenants.`);
      }),
    );
}

/** Adds `drain` and `rebalance`. */
function addServerMoves(server: Command): void {
  const drain = server
    .command('drain')
    .description('move every tenant of a server to the others; goes on after failures')
    .argument('<name>')
    .option('--to <server>', 'move all of them to this server');
  addMoveOptions(drain).action(
    withInstallation(async (installation, name: string, options: MoveOptions & { to?: string }) => {
      const { drainServer } = await import('../move/drain-server.ts');
      const request = { to: options.to, keepSeconds: options.keep * 3_600, maxPauseMs: options.pause * 1_000 };
      const outcomes = await drainServer(installation, name, request, {
        ...observe(options),
        onOutcome: outcome => {
          if (options.json) printPart(options, outcome, () => '');
        },
      });
      printText(options, () => tableText(outcomes, `There is no tenant on ${name}.`));
      return outcomes.every(({ error }) => error === null);
    }),
  );
  server
    .command('rebalance')
    .description('plan moves that even out the servers by the size of their tenants, and change nothing')
    .option('--plan', 'the default: only plans')
    .option(...jsonOption)
    .action(
      withInstallation(async (installation, options: OutputOptions) => {
        const { planRebalanceOf } = await import('../move/drain-server.ts');
        const moves = await planRebalanceOf(installation);
        printResult(options, moves, () => tableText(moves, 'The servers are even: no move would help.'));
      }),
    );
}

function parseCapacity(value: string): number {
  if (!/^\d{1,9}$/.test(value)) throw new InvalidArgumentError('Give a whole number.');
  return Number(value);
}

function parseCapacityOrNone(value: string): number | 'none' {
  return value === 'none' ? value : parseCapacity(value);
}
