import type { Command } from 'commander';
import { createCommand, withAnyInstallation, withBudget, withInstallation } from './command.ts';
import { confirmBlocking, type DespiteRunningOptions, despiteRunningOption } from './confirm-blocking.ts';
import { jsonOption, type OutputOptions, printResult } from './output.ts';

/** Builds `npm run control -- …`: commands on the control database itself. */
export function controlCommand(): Command {
  const control = createCommand('npm run -s control --').description('Manage the control database');
  control
    .command('migrate')
    .description('bring the control database to the version of this build; create it if it does not exist')
    .option(...despiteRunningOption)
    .option(...jsonOption)
    .action(
      withAnyInstallation(async (installation, options: OutputOptions & DespiteRunningOptions) => {
        const { processesBlockingControl } = await import('../migrations/blocking-processes.ts');
        const { createControlDatabase, migrateControl } = await import('../migrations/migrate-control.ts');
        const { requireMasterKey } = await import('../require-master-key.ts');
        const { fillServerAddresses } = await import('../tenants/servers.ts');
        const { controlUrl } = installation;
        const applied = await withBudget(installation, async () => {
          await createControlDatabase(controlUrl);
          await confirmBlocking(await processesBlockingControl(installation), options);
          const names = await migrateControl(controlUrl);
          await requireMasterKey(installation.statements, installation.secrets);
          await fillServerAddresses(installation);
          return names;
        });
        printResult(options, { applied }, () => (applied.length ? `Applied ${applied.join(', ')}.` : 'Nothing to do.'));
      }),
    );
  control
    .command('service-login')
    .description(
      'create the login of the service, which can neither create databases nor grant rights, or change its password',
    )
    .option(...jsonOption)
    .action(
      withInstallation(async ({ controlUrl }, options: OutputOptions) => {
        const { createServiceLogin } = await import('../service-login.ts');
        const { generatePassword } = await import('../tenants/users.ts');
        const databaseUrl = await createServiceLogin(controlUrl, generatePassword());
        printResult(options, { databaseUrl }, () => serviceLoginText(databaseUrl));
      }),
    );
  control
    .command('register-key')
    .description(
      'let processes start with the key in MASTER_KEY_PREVIOUS as their MASTER_KEY: the first step of a change of the key',
    )
    .option(...jsonOption)
    .action(
      withInstallation(async (installation, options: OutputOptions) => {
        const { registerNextKey } = await import('../master-key-change.ts');
        const registered = await registerNextKey(installation);
        const state = registered ? 'is now' : 'was already';
        printResult(options, { registered }, () => `The key in MASTER_KEY_PREVIOUS ${state} registered.`);
      }),
    );
  control
    .command('reseal')
    .description('encrypt every secret again under MASTER_KEY, and refuse all other keys: the last step of a change')
    .option(...jsonOption)
    .action(
      withInstallation(async (installation, options: OutputOptions) => {
        const { resealSecrets } = await import('../master-key-change.ts');
        const secrets = await resealSecrets(installation);
        printResult(options, { secrets }, () => `${secrets} secrets are sealed under MASTER_KEY.`);
      }),
    );
  return control;
}

function serviceLoginText(databaseUrl: string): string {
  return [
    'Start the service with this URL, which is shown only once:',
    '',
    `  DATABASE_URL=${databaseUrl}`,
    '',
    'The command line goes on with the URL of the operator.',
  ].join('\n');
}
