import { countText } from '../command/count-text.ts';
import { defineOperation } from '../command/operation.ts';
import { withBudget } from '../command/with-budget.ts';
import { confirmBlocking, despiteRunning } from '../schema/confirm-blocking.ts';
import { afterRestoreOperation } from './after-restore.command.ts';
import { restoreControlOperation } from './restore-control.command.ts';

const migrate = defineOperation({
  name: 'control migrate',
  description: 'bring the control database to the version of this build; create it if it does not exist',
  fields: { despiteRunning },
  examples: ['control migrate'],
  access: 'unchecked',
  effect: 'changes',
  async run({ despiteRunning }, context) {
    const { installation, output } = context;
    const { processesBlockingControl } = await import('../schema/blocking-processes.ts');
    const { createControlDatabase, migrateControl } = await import('../schema/migrate-control.ts');
    const { requireMasterKey } = await import('../people/require-master-key.ts');
    const { fillServerAddresses } = await import('../tenants/servers.ts');
    const { requireNoLostControl } = await import('./require-no-lost-control.ts');
    const { controlUrl } = installation;
    await requireNoLostControl(controlUrl);
    const applied = await withBudget(installation, output.warn, async () => {
      await createControlDatabase(controlUrl);
      await confirmBlocking(await processesBlockingControl(installation), despiteRunning, context);
      const names = await migrateControl(controlUrl);
      await requireMasterKey(installation.statements, installation.secrets);
      await fillServerAddresses(installation);
      return names;
    });
    output.result({ applied }, () => (applied.length ? `Applied ${applied.join(', ')}.` : 'Nothing to do.'));
  },
});

const serviceLogin = defineOperation({
  name: 'control service-login',
  description:
    'create the login of the service, which can neither create databases nor grant rights, or change its password',
  fields: {},
  examples: ['control service-login'],
  access: 'installation',
  effect: 'changes',
  async run(_, { installation, output }) {
    const { createServiceLogin } = await import('../schema/service-login.ts');
    const { generatePassword } = await import('../people/users.ts');
    const databaseUrl = await createServiceLogin(installation.controlUrl, generatePassword());
    output.result({ databaseUrl }, () => serviceLoginText(databaseUrl));
  },
});

const registerKey = defineOperation({
  name: 'control register-key',
  description:
    'let processes start with the key in MASTER_KEY_PREVIOUS as their MASTER_KEY: the first step of a change of the key',
  fields: {},
  examples: ['control register-key'],
  access: 'installation',
  effect: 'changes',
  async run(_, { installation, output }) {
    const { registerNextKey } = await import('../people/master-key-change.ts');
    const registered = await registerNextKey(installation);
    const state = registered ? 'is now' : 'was already';
    output.result({ registered }, () => `The key in MASTER_KEY_PREVIOUS ${state} registered.`);
  },
});

const reseal = defineOperation({
  name: 'control reseal',
  description: 'encrypt every secret again under MASTER_KEY, and refuse all other keys: the last step of a change',
  fields: {},
  examples: ['control reseal'],
  access: 'installation',
  effect: 'changes',
  async run(_, { installation, output }) {
    const { resealSecrets } = await import('../people/master-key-change.ts');
    const { withBackupLock } = await import('../archives/backup-lock.ts');
    // A run that goes on meanwhile would seal new keys under the former master key.
    const secrets = await withBackupLock(installation.controlUrl, 'archives', () => resealSecrets(installation));
    output.result({ secrets }, () => `${countText(secrets, 'secret is', 'secrets are')} sealed under MASTER_KEY.`);
  },
});

export const operations = [migrate, serviceLogin, registerKey, reseal, restoreControlOperation, afterRestoreOperation];

function serviceLoginText(databaseUrl: string): string {
  return [
    'Start the service with this URL, which is shown only once:',
    '',
    `  DATABASE_URL=${databaseUrl}`,
    '',
    'The command line goes on with the URL of the operator.',
  ].join('\n');
}
