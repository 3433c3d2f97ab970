import type { InstallationAccess } from '../../control/installation.ts';
import { databaseNameOf, databaseUrl } from '../../control/server-urls.ts';
import { sqlState } from '../../lib/postgres/database-error.ts';
import { defineOperation } from '../command/operation.ts';
import { countText } from '../command/texts.ts';
import {
  blockingText,
  confirmBlocking,
  despiteRunning,
  planBlocking,
} from '../schema/confirm-blocking.ts';
import { afterRestoreOperation } from './after-restore.command.ts';
import { restoreControlOperation } from './restore-control.command.ts';

const resealOperation = defineOperation({
  name: 'control reseal',
  help: {
    description: 'make MASTER_KEY the master key, and encrypt every secret again under it',
    examples: [
      'control reseal --dry-run # open every secret, and change nothing',
      'control reseal',
    ],
    more: `Run it when every process and every timer has MASTER_KEY, and the former key as MASTER_KEY_PREVIOUS. A process
that has not is not ready from then on, and says so.`,
  },
  effect: 'locks out',
  async plan(_, { installation }) {
    const { resealSecrets } = await import('../credentials/reseal.ts');
    const secrets = await resealSecrets(installation, true);

    return {
      document: { secrets, state: 'planned' },
      text: () => `${countText(secrets, 'secret')} would be sealed under MASTER_KEY.`,
      steady: 'every secret',
      confirm: {
        name: databaseNameOf(installation.controlUrl),
        kind: 'name',
        consequence: 'will have MASTER_KEY as its master key: processes without it stop working',
      },
    };
  },
  async run(_, { installation, output }) {
    const { resealSecrets } = await import('../credentials/reseal.ts');
    const secrets = await resealSecrets(installation);
    output.result(
      { secrets },
      () => `${countText(secrets, 'secret is', 'secrets are')} sealed under MASTER_KEY.`,
    );
  },
});

const migrate = defineOperation({
  name: 'control migrate',
  help: {
    description:
      'bring the control database to the version of this build; create it if it does not exist',
    examples: ['control migrate'],
  },
  fields: { despiteRunning },
  effect: 'changes',
  handling: { control: 'made' },
  async plan({ despiteRunning }, { installation }) {
    const { processesBlockingControl } = await import('../schema/blocking-processes.ts');
    const { pendingControl } = await import('../schema/migrate-control.ts');
    const { requireNoLostControl } = await import('../backup/lost-control.ts');
    await requireUsable(installation);
    await requireNoLostControl(installation);
    const { exists, pending } = await pendingControl(
      installation.controlUrl,
      installation.dataFolder,
    );
    const blockedBy = exists ? await processesBlockingControl(installation) : [];
    const { hasFailed, lines } = planBlocking(blockedBy, blockingText, despiteRunning);
    const texts = [
      ...(exists ? [] : ['The control database would be created.']),
      pending.length > 0 ? `Would be applied: ${pending.join(', ')}.` : 'Nothing to do.',
      ...lines,
    ];

    return {
      document: { exists, pending, blockedBy, state: 'planned' },
      text: () => texts.join('\n'),
      hasFailed,
    };
  },
  async run({ despiteRunning }, context) {
    const { installation, output } = context;
    const { processesBlockingControl } = await import('../schema/blocking-processes.ts');
    const { createControlDatabase, migrateControl } = await import('../schema/migrate-control.ts');
    const { requireMasterKey } = await import('../../control/present-key.ts');
    const { requireNoLostControl } = await import('../backup/lost-control.ts');
    const { controlUrl } = installation;
    await requireUsable(installation);
    await requireNoLostControl(installation);
    await createControlDatabase(controlUrl);
    const blockedBy = await processesBlockingControl(installation);
    await confirmBlocking(blockedBy, blockingText, despiteRunning, context);
    const applied = await migrateControl(controlUrl, installation.dataFolder);
    await requireMasterKey(installation.statements, installation.secrets);
    output.result({ applied }, () =>
      applied.length ? `Applied ${applied.join(', ')}.` : 'Nothing to do.',
    );
  },
});

/** @throws {OperatorError} when the server of a configured control database cannot be used */
async function requireUsable({ controlUrl: url, embedded }: InstallationAccess): Promise<void> {
  if (embedded) return;
  const { withConnection } = await import('../../lib/postgres/connection.ts');
  const { explainFailure, requireUsableControl } = await import('./control-head.ts');
  const { newDatabaseOptions } = await import('../schema/text-order.ts');
  const { onServer } = await import('./restoring-database.ts');

  await withConnection(url, client => requireUsableControl(client, { url, isOperator: true }))
    .catch(error => {
      if (sqlState(error) !== '3D000') throw error;
      const use = { url: databaseUrl(url, 'postgres'), isOperator: true, exists: false };
      return onServer(url, async client => {
        await requireUsableControl(client, use);
        await newDatabaseOptions(client); // throws when the database cannot be made there
      });
    })
    .catch(explainFailure);
}

const serviceLogin = defineOperation({
  name: 'control service-login',
  help: {
    description:
      'create the login of the service, which can neither create databases nor grant rights, or change its password',
    examples: [
      'control service-login',
      'control service-login -o url > service-database-url # a file for the service',
    ],
  },
  effect: 'locks out',
  handling: { result: 'url' },
  async plan(_, { installation }) {
    const { findServiceLogin } = await import('../schema/service-login.ts');
    const { withConnection } = await import('../../lib/postgres/connection.ts');
    const { name, exists } = await withConnection(installation.controlUrl, findServiceLogin);
    const consequence =
      'exists, and will have a new password: processes of the service connect with the new ' +
      'URL only';

    return {
      document: { login: name, exists, state: 'planned' },
      text: () =>
        exists ? `The login ${name} ${consequence}.` : `The login ${name} would be created.`,
      confirm: exists ? { name, kind: 'name', consequence } : undefined,
    };
  },
  async run(_, { installation, output }) {
    const { createServiceLogin } = await import('../schema/service-login.ts');
    const { generatePassword } = await import('../credentials/users.ts');
    const databaseUrl = await createServiceLogin(installation.controlUrl, generatePassword());
    output.result({ databaseUrl }, () => serviceLoginText(databaseUrl), databaseUrl);
  },
});

export const operations = [
  migrate,
  serviceLogin,
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
