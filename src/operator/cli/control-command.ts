import type { Command } from 'commander';
import { readConfig } from '../../config.ts';
import { openInstallation } from '../../installation.ts';
import { explain } from '../../operator-error.ts';
import { createControlDatabase, migrateControl } from '../migrations/migrate-control.ts';
import { resealSecrets } from '../tenants/keys.ts';
import { createCommand, printJson, withInstallation } from './command.ts';

/** `npm run control -- …`: the control database itself. */
export function controlCommand(): Command {
  const control = createCommand('npm run -s control --').description('The control database');
  control
    .command('migrate')
    .description('bring the control database to the version of this build, making the database when it is missing')
    .option('--json', 'one JSON document on stdout')
    .action(async ({ json }: { json?: boolean }) => {
      try {
        const installation = await openInstallation(readConfig());
        try {
          await createControlDatabase(installation.controlUrl);
          const applied = await migrateControl(installation.controlUrl);
          if (json) printJson({ applied });
          else process.stdout.write(applied.length ? `Applied ${applied.join(', ')}.\n` : 'Nothing to do.\n');
        } finally {
          await installation.close();
        }
      } catch (error) {
        process.stderr.write(`${explain(error)}\n`);
        process.exitCode = 1;
      }
    });
  control
    .command('reseal')
    .description(
      'seal every secret under MASTER_KEY again, after it was changed (MASTER_KEY_PREVIOUS holds the one before)',
    )
    .option('--json', 'one JSON document on stdout')
    .action(
      withInstallation(async (installation, { json }: { json?: boolean }) => {
        const secrets = await resealSecrets(installation);
        if (json) printJson({ secrets });
        else process.stdout.write(`${secrets} secrets are sealed under MASTER_KEY.\n`);
      }),
    );
  return control;
}
