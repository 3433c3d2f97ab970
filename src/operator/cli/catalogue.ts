import { groups, type Topic } from '../command/operation.ts';

type Row = readonly [name: string, summary: string, load: Topic['load']];

const topics: Readonly<Record<Topic['group'], readonly Row[]>> = {
  Tenants: [
    [
      'provision',
      'make a tenant, or one from each manifest of a folder',
      () => import('../lifecycle/provision.command.ts'),
    ],
    [
      'edit',
      'change the name or the features of a tenant',
      () => import('../registry/tenant.command.ts'),
    ],
    ['suspend', 'stop serving a tenant', () => import('../registry/state.command.ts')],
    ['resume', 'serve a tenant again', () => import('../registry/state.command.ts')],
    [
      'delete',
      'take a tenant out of service, and keep its data',
      () => import('../registry/state.command.ts'),
    ],
    ['undelete', 'serve a deleted tenant again', () => import('../recovery/undelete.command.ts')],
    [
      'restore',
      'bring earlier data of a tenant back',
      () => import('../recovery/restore.command.ts'),
    ],
    [
      'purge',
      'remove a deleted tenant with its data for good',
      () => import('../lifecycle/purge.command.ts'),
    ],
    ['clone', 'copy a tenant to a new slug', () => import('../lifecycle/clone.command.ts')],
    [
      'isolate',
      'send no mail; refuse programs and legacy clients',
      () => import('../registry/state.command.ts'),
    ],
    [
      'webhooks',
      'where tenants let their changes be sent, and what fails',
      () => import('../registry/webhooks.command.ts'),
    ],
    ['packs', 'reference data of public standards', () => import('../lifecycle/packs.command.ts')],
    [
      'export',
      'write the data of a tenant into files, for the tenant',
      () => import('../backup/archive/export.command.ts'),
    ],
    [
      'refresh',
      'read the data of a tenant again, after changes by psql',
      () => import('../registry/state.command.ts'),
    ],
  ],
  People: [
    ['user', 'users of a tenant', () => import('../credentials/user.command.ts')],
    ['session', 'open logins of users', () => import('../credentials/session.command.ts')],
    [
      'key',
      'keys that sign the access tokens of a tenant',
      () => import('../credentials/key.command.ts'),
    ],
    [
      'program',
      'programs that call the API with keys of their own',
      () => import('../credentials/program.command.ts'),
    ],
    [
      'identity-provider',
      'providers at which people of a tenant sign in',
      () => import('../credentials/identity-provider.command.ts'),
    ],
    ['client', 'programs that use legacy tokens', () => import('../credentials/client.command.ts')],
  ],
  Fleet: [
    [
      'migrate',
      'bring tenant databases to the version of this build',
      () => import('../schema/migrate.command.ts'),
    ],
    [
      'rollback',
      'undo the last migration of one tenant',
      () => import('../schema/rollback.command.ts'),
    ],
    ['runs', 'migration runs, and their progress', () => import('../schema/runs.command.ts')],
    [
      'control',
      'the control database: migrations, logins, master key',
      () => import('../recovery/control.command.ts'),
    ],
  ],
  Servers: [
    [
      'server',
      'PostgreSQL servers that tenants are placed on',
      () => import('../servers/server.command.ts'),
    ],
    [
      'move',
      'move a tenant to another server while it is served',
      () => import('../databases/verbs/move.command.ts'),
    ],
    [
      'databases',
      'databases beside those that tenants have now',
      () => import('../databases/verbs/databases.command.ts'),
    ],
  ],
  Backup: [
    [
      'backup',
      'archives of tenants, their checks and drills',
      () => import('../backup/backup.command.ts'),
    ],
    [
      'retention',
      'how long activities and audit entries are kept',
      () => import('../backup/retention/retention.command.ts'),
    ],
  ],
  Look: [
    ['list', 'list the tenants', () => import('../registry/tenant.command.ts')],
    ['show', 'show one tenant', () => import('../registry/tenant.command.ts')],
    [
      'status',
      'show versions and states of the fleet, and failed tenants',
      () => import('../schema/runs.command.ts'),
    ],
    [
      'processes',
      'list the running processes and their connections',
      () => import('../servers/processes.command.ts'),
    ],
    ['usage', 'show what tenants used', () => import('../registry/usage.command.ts')],
    [
      'logs',
      'list what operators changed, when and why',
      () => import('../registry/logs.command.ts'),
    ],
    [
      'doctor',
      'find what is wrong anywhere, and repair it',
      () => import('../doctor/doctor.command.ts'),
    ],
    [
      'console',
      'show the fleet in a browser, and run commands there',
      () => import('../console/console.command.ts'),
    ],
    [
      'completion',
      'print the script of a shell that completes commands',
      () => import('./completion.command.ts'),
    ],
  ],
};

/**
 * All operations, by topic. The command line loads the module of one topic only; help and
 * completion need no module of another one.
 */
export const catalogue: readonly Topic[] = groups.flatMap(group =>
  topics[group].map(([name, summary, load]) => ({ group, name, summary, load })),
);
