import { once } from 'node:events';
import { createServer } from 'node:http';
import { hostname } from 'node:os';
import { httpAddress, listen, portOf } from '../../lib/http/server/server-ports.ts';
import type { Context, Topic } from '../command/operation.ts';
import { createConsoleApp } from './console-app.ts';
import { createLocalEntrance, createTeamEntrance } from './entrance.ts';
import { operationPath } from './links.ts';
import { offeredOperations } from './offered.ts';
import { openBrowser } from './open-browser.ts';
import { Runs } from './runs.ts';

/** The address of a console, its users, and the commands that it runs. */
export interface ConsoleOptions {
  readonly host: string;
  readonly port: number;
  /** Names of operations and of sets; undefined: all. */
  readonly allow: readonly string[] | undefined;
  readonly team: { readonly proxies: readonly string[]; readonly userHeader: string } | undefined;
  readonly opensBrowser: boolean;
}

/**
 * In milliseconds: connections that send nothing close soon, so that a flood of them shuts
 * nobody out.
 */
const timeouts = {
  headersTimeout: 5_000,
  requestTimeout: 15_000,
  connectionsCheckingInterval: 1_000,
};

/**
 * Serves the console until `signal` aborts, and until the commands that it runs have ended.
 * @throws {OperatorError} when it cannot listen
 */
export async function runConsole(
  { host, port, allow, team, opensBrowser }: ConsoleOptions,
  { installation, output, signal }: Context,
  catalogue: readonly Topic[],
): Promise<void> {
  const offered = await offeredOperations(catalogue, allow, team !== undefined);
  const runnable = new Set(
    [...offered.values()].flatMap(({ operation, isAllowed }) =>
      isAllowed ? [operationPath(operation.name)] : [],
    ),
  );

  const runs = new Runs();
  const entrance = team ? createTeamEntrance(team.proxies, team.userHeader) : createLocalEntrance();

  const app = createConsoleApp({
    entrance,
    offered,
    runs,
    control: installation,
    shell: {
      place: hostname(),
      runs: path => runnable.has(path),
      mode:
        allow === undefined ? '' : allow.length === 0 ? 'read only' : `only ${allow.join(', ')}`,
    },
  });

  const server = createServer(timeouts, app);
  await listen(server, port, host, { host: '--host', port: '--port' });
  const address = httpAddress(host, portOf(server));
  const url = address + entrance.startPath;

  output.part({ url }, () =>
    team
      ? `The console listens on ${address} for the proxy. Ctrl-C ends it.`
      : `Open this address, which works once:\n\n  ${url}\n\nCtrl-C ends the console.`,
  );
  const removeFile = opensBrowser && process.stdout.isTTY ? await openBrowser(url) : undefined;

  if (!signal.aborted) await once(signal, 'abort');

  await removeFile?.();
  server.close();
  server.closeAllConnections();
  await runs.stop();
}
