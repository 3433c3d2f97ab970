import { databaseNameOf } from '../../control/server-urls.ts';
import { defineChange } from '../command/define-change.ts';
import { defineOperation } from '../command/operation.ts';
import { countText } from '../command/texts.ts';
import type { BlockingHolder } from '../people/master-key-change.ts';
import {
  blockingText,
  confirmBlocking,
  despiteRunning,
  planBlocking,
  processNames,
} from '../schema/confirm-blocking.ts';
import { afterRestoreOperation, restoreControlOperation } from './restore-control.command.ts';

const resealOperation = defineOperation({
  name: 'control reseal',
  description: 'encrypt every secret again under MASTER_KEY, and refuse all other keys: the last step of a change',
  fields: { despiteRunning },
  examples: [
    'control reseal --dry-run # open every secret, and name the processes that lack the key',
    'control reseal',
  ],
  help: `The command is refused while a process of the service, or another command, runs with another MASTER_KEY than
this one: without this key it could open no secret, and with this key as MASTER_KEY_PREVIOUS it could not start again.
A process that has not beaten for five seconds does not count.`,
  effect: 'locks out',
  async plan({ despiteRunning }, { installation }) {
    const { processesBlockingReseal, resealSecrets } = await import('../people/master-key-change.ts');
    const secrets = await resealSecrets(installation, true);
    const blockedBy = await processesBlockingReseal(installation);
    const { hasFailed, lines } = planBlocking(blockedBy, holdersText, despiteRunning);
    return {
      document: { secrets, blockedBy, state: 'planned' },
      text: () => [`${countText(secrets, 'secret')} would be sealed under MASTER_KEY.`, ...lines].join('\n'),
      hasFailed,
      confirm: {
        name: databaseNameOf(installation.controlUrl),
        kind: 'name',
        consequence: 'will accept MASTER_KEY only: processes with another key stop working',
      },
    };
  },
  async run({ despiteRunning }, context) {
    const { installation, output } = context;
    const { processesBlockingReseal, resealSecrets } = await import('../people/master-key-change.ts');
    const { withBackupLock } = await import('../archives/backup-lock.ts');
    // A run that goes on meanwhile would seal new keys under the former master key.
    const secrets = await withBackupLock(installation.controlUrl, 'archives', async () => {
      await confirmBlocking(await processesBlockingReseal(installation), holdersText, despiteRunning, context);
      return resealSecrets(installation);
    });
    output.result({ secrets }, () => `${countText(secrets, 'secret is', 'secrets are')} sealed under MASTER_KEY.`);
  },
});

const lacks: Record<BlockingHolder['lack'], string> = {
  lacks_key: ', which does not have this key',
  is_previous: ', which has it as MASTER_KEY_PREVIOUS only',
};

/** Names the processes that `reseal` would cut off from the secrets, as a sentence without its full stop. */
function holdersText(blockedBy: BlockingHolder[]): string {
  const subject = countText(blockedBy.length, 'running process', 'running processes');
  const names = processNames(blockedBy, ({ kind, lack }) => `${kind === 'command' ? ', a command' : ''}${lacks[lack]}`);
  return `${subject} would not have the only key of the secrets as MASTER_KEY: ${names}`;
}

const migrate = defineOperation({
  name: 'control migrate',
  description: 'bring the control database to the version of this build; create it if it does not exist',
  fields: { despiteRunning },
  examples: ['control migrate'],
  access: 'unchecked',
  effect: 'changes',
  async plan({ despiteRunning }, { installation }) {
    const { processesBlockingControl } = await import('../schema/blocking-processes.ts');
    const { pendingControl } = await import('../schema/migrate-control.ts');
    const { requireNoLostControl } = await import('./require-no-lost-control.ts');
    await requireNoLostControl(installation.controlUrl);
    const { exists, pending } = await pendingControl(installation.controlUrl, installation.dataFolder);
    const blockedBy = exists ? await processesBlockingControl(installation) : [];
    const { hasFailed, lines } = planBlocking(blockedBy, blockingText, despiteRunning);
    const texts = [
      ...(exists ? [] : ['The control database would be created.']),
      pending.length > 0 ? `Would be applied: ${pending.join(', ')}.` : 'Nothing to do.',
      ...lines,
    ];
    return { document: { exists, pending, blockedBy, state: 'planned' }, text: () => texts.join('\n'), hasFailed };
  },
  async run({ despiteRunning }, context) {
    const { installation, output } = context;
    const { processesBlockingControl } = await import('../schema/blocking-processes.ts');
    const { createControlDatabase, migrateControl } = await import('../schema/migrate-control.ts');
    const { requireMasterKey } = await import('../people/require-master-key.ts');
    const { requireNoLostControl } = await import('./require-no-lost-control.ts');
    const { controlUrl } = installation;
    await requireNoLostControl(controlUrl);
    await createControlDatabase(controlUrl);
    const blockedBy = await processesBlockingControl(installation);
    await confirmBlocking(blockedBy, blockingText, despiteRunning, context);
    const applied = await migrateControl(controlUrl, installation.dataFolder);
    await requireMasterKey(installation.statements, installation.secrets);
    output.result({ applied }, () => (applied.length ? `Applied ${applied.join(', ')}.` : 'Nothing to do.'));
  },
});

const serviceLogin = defineOperation({
  name: 'control service-login',
  description:
    'create the login of the service, which can neither create databases nor grant rights, or change its password',
  examples: ['control service-login', 'control service-login -o url > service-database-url # a file for the service'],
  effect: 'locks out',
  makesUrl: true,
  async plan(_, { installation }) {
    const { findServiceLogin } = await import('../schema/service-login.ts');
    const { withConnection } = await import('../../postgres/connection.ts');
    const { name, exists } = await withConnection(installation.controlUrl, findServiceLogin);
    const consequence = 'exists, and will have a new password: processes of the service connect with the new URL only';
    return {
      document: { login: name, exists, state: 'planned' },
      text: () => (exists ? `The login ${name} ${consequence}.` : `The login ${name} would be created.`),
      confirm: exists ? { name, kind: 'name', consequence } : undefined,
    };
  },
  async run(_, { installation, output }) {
    const { createServiceLogin } = await import('../schema/service-login.ts');
    const { generatePassword } = await import('../people/users.ts');
    const databaseUrl = await createServiceLogin(installation.controlUrl, generatePassword());
    output.result({ databaseUrl }, () => serviceLoginText(databaseUrl), databaseUrl);
  },
});

const registerKey = defineChange({
  name: 'control register-key',
  description:
    'let processes start with the key in MASTER_KEY_PREVIOUS as their MASTER_KEY: the first step of a change of the key',
  examples: ['control register-key'],
  effect: 'changes',
  async change(_, { installation }, isDryRun) {
    const { registerNextKey } = await import('../people/master-key-change.ts');
    const registered = await registerNextKey(installation, isDryRun);
    const key = 'The key in MASTER_KEY_PREVIOUS';
    return {
      document: { registered },
      plan: `${key} ${registered ? 'would be' : 'is already'} registered.`,
      done: `${key} ${registered ? 'is now' : 'was already'} registered.`,
    };
  },
});

export const operations = [
  migrate,
  serviceLogin,
  registerKey,
  resealOperation,
  restoreControlOperation,
  afterRestoreOperation,
];

function serviceLoginText(databaseUrl: string): string {
  return [
    'Start the service with this URL, which is shown only once:',
    '',
    `  DATABASE_URL=${databaseUrl}`,
    '',
    'The command line goes on with the URL of the operator.',
  ].join('\n');
}
