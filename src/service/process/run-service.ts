import type { Logger } from 'pino';
import type { DemoLogin } from '../../control/demo-login.ts';
import type { Installation } from '../../control/installation.ts';
import type { Config } from '../../lib/config/config.ts';
import { environment } from '../../lib/config/process-environment.ts';
import { httpAddress } from '../../lib/http/server/server-ports.ts';
import type { LogOutput } from '../../lib/log/log-output.ts';
import { onStopSignal, type StopSignal, stopSignals } from '../../lib/runtime/signals.ts';
import { startServer } from '../server.ts';
import { onFault } from './faults.ts';

export interface RunOptions {
  readonly config: Config;
  readonly installation: Installation;
  /** The demo tenant, on the embedded PostgreSQL. */
  readonly demo: DemoLogin | undefined;
  readonly log: Logger;
  readonly output: LogOutput;
  /**
   * Removes the handlers with which a signal ends the start at once: the service handles
   * signals itself then.
   */
  readonly ignoreEarlySignals: () => void;
}

/** Serves requests in this process, until a signal or a fault ends it. */
export async function runService({
  config,
  installation,
  demo,
  log,
  output,
  ignoreEarlySignals,
}: RunOptions): Promise<void> {
  const { stop, ...ports } = await startServer({ config, installation, log, logOutput: output });
  ignoreEarlySignals();
  const ended = serviceEnd(log);
  reportListening({ config, log, output, ports, demo });

  const reason = await ended;
  log.info({ event: 'stopping', reason }, 'stopping after the running requests');
  const finished = await stop(reason === 'SIGTERM' ? config.shutdownDelayMs : 0);
  if (!finished) process.exitCode = 1;
}

/** Resolves when the process must end: on a signal, or on an error that nothing handled. */
function serviceEnd(log: Logger): Promise<StopSignal | 'fault'> {
  return new Promise(resolve => {
    onStopSignal(stopSignals, resolve, () => process.exit(1));
    onFault(log, () => resolve('fault'));
  });
}

interface Listening extends Pick<RunOptions, 'config' | 'log' | 'output' | 'demo'> {
  readonly ports: { readonly port: number; readonly managementPort: number };
}

/** Logs the ports of the service, and prints the welcome text of the demo tenant. */
export function reportListening({ config, log, output, ports, demo }: Listening): void {
  const { port, managementPort } = ports;
  const { host, processes } = config;
  log.info(
    { event: 'listening', port, managementPort, ...(processes > 1 && { processes }) },
    'listening',
  );
  if (demo) {
    output.write(`${welcome({ host, port, managementPort, hasProxy: hasProxy() }, demo)}\n`);
  }
}

/** True if this environment, which is probably that of the shell, lets `curl` use a proxy. */
function hasProxy(): boolean {
  return Object.keys(environment()).some(name => /^(http|all)_proxy$/i.test(name));
}

interface Addresses {
  readonly host: string;
  readonly port: number;
  readonly managementPort: number;
  /** True if `curl` would use a proxy, which does not lead back to this machine. */
  readonly hasProxy: boolean;
}

/**
 * Returns the text that `npm start` prints: the addresses of the service and the login of the
 * demo user. Its lines are for Bash, Zsh and Fish.
 */
export function welcome(
  { host, port, managementPort, hasProxy }: Addresses,
  { tenant, email, password }: DemoLogin,
): string {
  const base = httpAddress(host, port);
  const json = `-H 'Content-Type: application/json'`;
  const curl = hasProxy ? `curl -sS --noproxy '*'` : 'curl -sS';
  const call = `${curl} -w '\\n' -H "Authorization: Bearer $TOKEN"`;
  const credentials = `-H 'X-Tenant: ${tenant.guid}' ${json} -d '{"email":"${email}","password":"${password ?? '<password>'}"}'`;
  const login = `${curl} ${base}/api/v1/auth/login ${credentials}`;
  const setPassword = `bin/backoffice user password ${tenant.slug} ${email}`;

  return [
    '',
    `  Sales back office    ${base}`,
    `  Guide                ${base}/docs`,
    `  Explorer             ${base}/swagger?tenant=${tenant.guid}`,
    `  Health               http://127.0.0.1:${managementPort}/health/ready`,
    `  Demo tenant          ${tenant.guid}`,
    `  Demo user            ${email}`,
    password
      ? `  Password             ${password}`
      : `  Password             was changed since the first start; to set a new one: ${setPassword}`,
    '',
    '  Log in:',
    `  ${login}`,
    '',
    '  Log in, read a list, make a customer, and find it:',
    `  export TOKEN=$(${login} | sed -n 's/.*"accessToken":"\\([^"]*\\)".*/\\1/p')`,
    `  ${call} '${base}/api/v1/Countries?limit=3'`,
    `  ${call} ${base}/api/v1/Entities ${json} -d '{"Name":"Blue Harbour Ltd","EntityType":"customer"}'`,
    `  ${call} '${base}/api/v1/Entities?q=harbour'`,
    '',
  ].join('\n');
}
