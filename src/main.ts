import { fileURLToPath } from 'node:url';
import type { Logger } from 'pino';
import { createPasswords, type Passwords } from './auth/passwords.ts';
import { type Config, readConfig, settingWarnings } from './config.ts';
import { openControlDatabase } from './control/database.ts';
import { type Installation, openInstallation } from './installation.ts';
import { createLog, describeError } from './log.ts';
import { requireControlHead } from './operator/control-head.ts';
import { migrateTenants } from './operator/migrations/migrate-tenants.ts';
import { readManifest } from './operator/provisioning/manifest.ts';
import { type Provisioned, provision } from './operator/provisioning/provision.ts';
import { requireMasterKey } from './operator/require-master-key.ts';
import { createServiceLogin, isOperatorLogin } from './operator/service-login.ts';
import { explain } from './operator-error.ts';
import { startServer } from './server.ts';
import { onStopSignal } from './signals.ts';

/** Runs the process: configuration → installation → server, until a signal ends it. */
async function main(): Promise<void> {
  const config = readConfig();
  const { log, output } = createLog(config.logLevel);
  process.on('exit', output.flushFinally);
  for (const warning of settingWarnings()) log.warn({ event: 'setting' }, warning);
  const opening = openInstallation(config);
  const ignoreEarlySignals = exitOnSignals(async () => (await opening).close());
  let installation = await opening;
  try {
    const passwords = createPasswords();
    await requireControlHead(installation);
    await requireMasterKey(installation.control.em, installation.secrets);
    const demo = installation.embedded ? await provisionDemo(installation, passwords) : undefined;
    if (installation.embedded) installation = await withServiceLogin(installation, config);
    else await warnOfOperatorLogin(installation, log);
    const service = await startServer({ config, installation, log, passwords, logOutput: output });
    ignoreEarlySignals();
    const ended = processEnd(log);
    log.info({ event: 'listening', port: service.port, managementPort: service.managementPort }, 'listening');
    if (demo) output.write(`${welcome(config.host, service.port, service.managementPort, demo)}\n`);

    const reason = await ended;
    log.info({ event: 'stopping', reason }, 'stopping after the running requests');
    const finished = await service.stop(reason === 'SIGTERM' ? config.shutdownDelayMs : 0);
    if (!finished) process.exitCode = 1;
  } finally {
    await installation.close();
  }
}

const exitCodes = { SIGINT: 130, SIGTERM: 143 } as const; // 128 and the number of the signal, as shells report it
type StopReason = keyof typeof exitCodes | 'fault';

const maxCleanUpMs = 3_000;

/** Ends the process at a signal, without waiting for the start to finish. @returns a function that ends this */
function exitOnSignals(cleanUp: () => Promise<void>): () => void {
  const handlers = Object.entries(exitCodes).map(([signal, code]) => {
    const handler = (): void => {
      setTimeout(() => process.exit(code), maxCleanUpMs).unref();
      void cleanUp().finally(() => process.exit(code));
    };
    process.once(signal, handler);
    return () => process.off(signal, handler);
  });
  return () => {
    for (const remove of handlers) remove();
  };
}

/**
 * Resolves when the process must end: on a signal, or on an error that nothing handled. After such an error the exit
 * code is 1, also when the process was stopping already.
 */
function processEnd(log: Logger): Promise<StopReason> {
  return new Promise(resolve => {
    onStopSignal(['SIGTERM', 'SIGINT'], resolve, () => process.exit(1));
    process.on('uncaughtException', error => {
      process.exitCode = 1;
      resolve('fault');
      logFault(log, error);
    });
  });
}

/** Never throws, whatever was thrown: an error in the handler of uncaught errors would end the process at once. */
function logFault(log: Logger, error: unknown): void {
  try {
    log.fatal({ event: 'fault', err: describeError(error) }, 'an error was not handled');
  } catch {
    log.fatal({ event: 'fault' }, 'an error was not handled, and cannot be described');
  }
}

/** On the embedded PostgreSQL, provisions the demo tenant and migrates all tenants to head. */
async function provisionDemo(installation: Installation, passwords: Passwords): Promise<Provisioned> {
  const manifest = await readManifest(fileURLToPath(new URL('../tenants/demo.json', import.meta.url)));
  const demo = await provision(installation, passwords, manifest);
  const failed = (await migrateTenants(installation)).outcomes.filter(outcome => outcome.state === 'failed');
  for (const { slug, error } of failed) console.error(`Tenant ${slug} could not be migrated: ${error}`);
  return demo;
}

/** Opens the embedded control database with the login of the service: it has the same rights as in production. */
async function withServiceLogin(operator: Installation, config: Config): Promise<Installation> {
  // Other processes on the same embedded PostgreSQL derive the same password.
  const password = operator.secrets.mac('service_login').toString('base64url');
  const controlUrl = await createServiceLogin(operator.controlUrl, password);
  const control = openControlDatabase(controlUrl, config.controlConnections);
  const close = async (): Promise<void> => {
    await control.close(true);
    await operator.close();
  };
  return { ...operator, controlUrl, control, close };
}

/** The service needs no rights of an operator, and an attacker who takes it over should not get them. */
async function warnOfOperatorLogin({ control }: Installation, log: Logger): Promise<void> {
  if (await isOperatorLogin(control))
    log.warn(
      { event: 'operator_login' },
      'the service runs with the login of an operator; make one of its own: npm run -s control -- service-login',
    );
}

/** Returns the text that `npm start` prints: the addresses of the service and the login of the demo user. */
function welcome(host: string, port: number, managementPort: number, { tenant, created, logins }: Provisioned): string {
  const base = `http://${host}:${port}`;
  const [admin] = logins;
  const password = admin?.password ?? '<password>';
  const email = admin?.email ?? 'admin@demo.test';
  const headers = `-H 'X-Tenant: ${tenant.guid}' -H 'Content-Type: application/json'`;
  const setPassword = `npm run -s tenant -- user password ${tenant.slug} ${email}`;
  return [
    '',
    `  Sales back office    ${base}`,
    `  Health               http://127.0.0.1:${managementPort}/health/ready`,
    `  Demo tenant          ${tenant.guid}`,
    `  Demo user            ${email}`,
    created
      ? `  Password             ${password}   (shown only once)`
      : `  Password             was shown at the first start; to set a new one: ${setPassword}`,
    '',
    '  Log in:',
    `  curl -s ${base}/api/v1/auth/login ${headers} -d '{"email":"${email}","password":"${password}"}'`,
    '',
  ].join('\n');
}

main().catch(error => {
  console.error(explain(error));
  process.exitCode = 1;
});
