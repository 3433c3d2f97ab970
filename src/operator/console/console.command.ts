import { OperatorError } from '../../lib/log/operator-error.ts';
import { defineOperation } from '../command/operation.ts';
import { flag, option, optionList, parseNames, type Values } from '../command/operation-fields.ts';
import type { ConsoleOptions } from './run-console.ts';

const fields = {
  port: option('<port>', 'port to listen on', {
    kind: 'text',
    parse: parsePort,
    default: 0,
    otherwise: 'a free one',
  }),
  host: option(
    '<address>',
    'address to listen on; another one than that of this machine needs --user-header',
    {
      kind: 'text',
      default: '127.0.0.1',
    },
  ),
  readOnly: flag('show everything, and run nothing'),
  allow: option(
    '<names>',
    'run only these, separated by commas: commands such as suspend, or the sets view, support, migrate, all',
    { kind: 'text', parse: parseNames },
  ),
  trustedProxy: optionList(
    '<address>',
    'proxy that names the user of each request; an address or a network',
    { kind: 'text' },
  ),
  userHeader: option(
    '<header>',
    'header in which that proxy names the user, such as X-Forwarded-Email',
    { kind: 'text' },
  ),
  noBrowser: flag('print the address, and open no browser'),
};

const consoleOperation = defineOperation({
  name: 'console',
  help: {
    description: 'show the fleet in a browser, and run commands there, until Ctrl-C',
    examples: ['console', 'console --port 7070 --read-only', 'console --allow support,resume'],
    more: `It listens on this machine only, and prints an address that works once. From another machine, log in to this one as below, start console --port 7070 there, and open the address here:
  ssh -L 7070:127.0.0.1:7070 <host>

The sets: view runs the commands that only read; support user, session and key; migrate runs migrate, rollback and runs.

For a team, put it behind a proxy that knows who somebody is, and removes the header from what clients send:
  console --host 0.0.0.0 --port 7070 --trusted-proxy 10.0.0.7 \\
    --user-header X-Forwarded-Email
Each change then needs a reason, and the log of operators has the name of the user.

Ctrl-C ends it; commands that it runs end as on the command line.`,
    json: 'print one JSON line on stdout, with the address',
  },
  fields,
  effect: 'reads',
  handling: { interrupt: { text: 'the commands that run' } },
  async run(values, context, catalogue) {
    const { runConsole } = await import('./run-console.ts');
    return runConsole(optionsOf(values), context, catalogue);
  },
});

export const operations = [consoleOperation];

/** @throws {OperatorError} when the options would let an unknown visitor in */
function optionsOf({
  host,
  port,
  readOnly,
  allow,
  trustedProxy,
  userHeader,
  noBrowser,
}: Values<typeof fields>) {
  const usage = (message: string): OperatorError => new OperatorError(message, { usage: true });

  if (readOnly && allow) throw usage('Give either --read-only or --allow');
  if (userHeader !== undefined && trustedProxy.length === 0) {
    throw usage('Name the proxy whose header is trusted: --trusted-proxy <address>');
  }
  if (trustedProxy.length > 0 && userHeader === undefined) {
    throw usage(
      'Name the header in which the proxy names the user: --user-header X-Forwarded-Email',
    );
  }

  if (userHeader === undefined && !['127.0.0.1', '::1'].includes(host)) {
    throw usage(
      `Everybody who reaches ${host} could use the console: give --user-header and --trusted-proxy, too`,
    );
  }

  const options: ConsoleOptions = {
    host,
    port,
    allow: readOnly ? [] : allow,
    team:
      userHeader === undefined
        ? undefined
        : { proxies: trustedProxy, userHeader: userHeader.toLowerCase() },
    opensBrowser: !noBrowser && userHeader === undefined,
  };
  return options;
}

function parsePort(text: string): number {
  if (!/^\d{1,5}$/.test(text) || Number(text) > 65_535) {
    throw new OperatorError('Give a port from 0 to 65535.');
  }
  return Number(text);
}
