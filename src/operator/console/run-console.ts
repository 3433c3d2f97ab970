import { hostname } from 'node:os';
import { httpAddress, portOf } from '../../http/server-ports.ts';
import { OperatorError } from '../../log/operator-error.ts';
import type { Context, Topic } from '../command/operation.ts';
import { createConsoleApp } from './console-app.ts';
import { createConsoleServer } from './console-server.ts';
import { createLocalEntrance, createTeamEntrance } from './entrance.ts';
import { offeredOperations } from './offered.ts';
import { openBrowser } from './open-browser.ts';
import { Runs } from './runs.ts';

/** How a console is reached, and what it runs. */
export interface ConsoleOptions {
  readonly host: string;
  readonly port: number;
  /** Names of operations and of sets; undefined: all. */
  readonly allow: readonly string[] | undefined;
  readonly team: { readonly proxies: readonly string[]; readonly userHeader: string } | undefined;
  readonly opensBrowser: boolean;
}

/**
 * Serves the console until `signal` aborts, and until the commands that it runs have ended.
 * @throws {OperatorError} when it cannot listen
 */
export async function runConsole(
  { host, port, allow, team, opensBrowser }: ConsoleOptions,
  { installation, output, signal }: Context<'statements'>,
  catalogue: readonly Topic[],
): Promise<void> {
  const offered = await offeredOperations(catalogue, allow);
  const runs = new Runs();
  const { entrance, token } = team
    ? { entrance: createTeamEntrance(team.proxies, team.userHeader), token: undefined }
    : createLocalEntrance();
  const app = createConsoleApp({
    ...{ entrance, offered, runs, needsReason: team !== undefined },
    control: installation,
    shell: {
      place: hostname(),
      mode: allow === undefined ? '' : allow.length === 0 ? 'read only' : `only ${allow.join(', ')}`,
    },
  });
  const server = createConsoleServer(
    app,
    request => entrance.admits(request.socket.remoteAddress) && entrance.visitorOf(request) !== undefined,
  );
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => reject(listenError(error, host, port)));
    server.listen(port, host, resolve);
  });
  const address = httpAddress(host, portOf(server));
  const url = token === undefined ? `${address}/` : `${address}/start?token=${token}`;
  output.part({ url }, () =>
    token === undefined
      ? `The console listens on ${address} for the proxy. Ctrl-C ends it.`
      : `Open this address, which works once:\n\n  ${url}\n\nCtrl-C ends the console.`,
  );
  const removeFile = opensBrowser && process.stdout.isTTY ? await openBrowser(url) : undefined;
  await new Promise<void>(resolve => {
    if (signal.aborted) resolve();
    signal.addEventListener('abort', () => resolve(), { once: true });
  });
  await removeFile?.();
  server.close();
  server.closeAllConnections();
  await runs.stop();
}

function listenError({ code }: NodeJS.ErrnoException, host: string, port: number): OperatorError {
  const remedy =
    code === 'EADDRINUSE' ? 'another process uses it: give another --port' : `${code}: give another --host or --port`;
  return new OperatorError(`The console cannot listen on ${host}, port ${port}: ${remedy}`);
}
