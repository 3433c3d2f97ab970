import type { Command } from 'commander';
import { countText } from '../count-text.ts';
import { withAnyInstallation, withBudget, withInstallation } from './command.ts';
import { confirmBlocking, type DespiteRunningOptions, despiteRunningOption } from './confirm-blocking.ts';
import { confirmName } from './confirm-name.ts';
import { jsonOption, type OutputOptions, printResult } from './output.ts';
import { readSecret } from './read-secret.ts';
import { addRestoreControl } from './restore-control-command.ts';
import { fieldsText } from './text-table.ts';

/** Adds the commands of `control`: the control database itself. */
export function addControlCommands(program: Command): void {
  const control = program.command('control').description('Manage the control database');
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
        printResult(
          options,
          { secrets },
          () => `${countText(secrets, 'secret is', 'secrets are')} sealed under MASTER_KEY.`,
        );
      }),
    );
  addRestoreControl(control);
  addAfterRestore(control);
}

/** Adds `after-restore`. */
function addAfterRestore(control: Command): void {
  control
    .command('after-restore')
    .description('make a restored control database safe, before the service starts: end sessions, replace keys')
    .option(
      '--replay',
      'read the URL of the control database that was replaced from stdin; revoke again what is revoked there',
    )
    .option('--yes', 'do not ask for confirmation')
    .option(...jsonOption)
    .action(
      withInstallation(async (installation, options: OutputOptions & { replay?: boolean; yes?: boolean }) => {
        const { withConnection } = await import('../../postgres/connection.ts');
        const { afterRestore } = await import('../restore/control/after-restore.ts');
        const { readLaterChanges } = await import('../restore/control/later-changes.ts');
        const laterUrl = options.replay
          ? (await readSecret('URL of the control database that was replaced')).trim()
          : undefined;
        const name = decodeURIComponent(new URL(installation.controlUrl).pathname.slice(1));
        await confirmName(name, 'will end all sessions, and replace all signing keys', options.yes, 'name');
        const later = laterUrl === undefined ? undefined : await withConnection(laterUrl, readLaterChanges);
        const report = await afterRestore(installation, later);
        const { replayed, ...counts } = report;
        printResult(options, report, () =>
          [
            fieldsText(replayed ? { ...counts, ...replayed } : counts),
            '',
            ...(replayed ? [] : [unknownText(report.newestChange)]),
            'Everybody logs in again. Next: npx backoffice migrate --all, then npx backoffice doctor',
          ].join('\n'),
        );
      }),
    );
}

function unknownText(newestChange: string | null): string {
  return (
    `What was revoked after ${newestChange ?? 'the backup'} is not known: disable again the users, and revoke again the ` +
    'legacy clients, that were disabled or revoked since'
  );
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
