import type { Topic } from '../command/operation.ts';

const topic = (group: Topic['group'], name: string, summary: string, load: Topic['load']): Topic => ({
  group,
  name,
  summary,
  load,
});

/**
 * All operations, by topic. The command line loads the module of one topic only; help and completion need no module of
 * another one.
 */
export const catalogue: readonly Topic[] = [
  topic(
    'Tenants',
    'provision',
    'make a tenant, or one from each manifest of a folder',
    () => import('../lifecycle/provision.command.ts'),
  ),
  topic('Tenants', 'edit', 'change the name or the features of a tenant', () => import('../tenants/edit.command.ts')),
  topic('Tenants', 'suspend', 'stop serving a tenant', () => import('../tenants/state.command.ts')),
  topic('Tenants', 'resume', 'serve a tenant again', () => import('../tenants/state.command.ts')),
  topic(
    'Tenants',
    'delete',
    'take a tenant out of service, and keep its data',
    () => import('../tenants/state.command.ts'),
  ),
  topic(
    'Tenants',
    'restore',
    'bring a deleted tenant back, or earlier data of a tenant',
    () => import('../recovery/restore.command.ts'),
  ),
  topic(
    'Tenants',
    'purge',
    'remove a deleted tenant with its data for good',
    () => import('../lifecycle/purge.command.ts'),
  ),
  topic('Tenants', 'clone', 'copy a tenant to a new slug', () => import('../lifecycle/clone.command.ts')),
  topic(
    'Tenants',
    'isolate',
    'send no mail of a tenant, and refuse its legacy clients',
    () => import('../tenants/state.command.ts'),
  ),
  topic(
    'Tenants',
    'webhooks',
    'where tenants let their changes be sent, and what fails',
    () => import('../tenants/webhooks.command.ts'),
  ),
  topic('Tenants', 'packs', 'reference data of public standards', () => import('../lifecycle/packs.command.ts')),
  topic(
    'Tenants',
    'export',
    'write the data of a tenant into files, for the tenant',
    () => import('../export/export.command.ts'),
  ),
  topic(
    'Tenants',
    'refresh',
    'read the data of a tenant again, after changes by psql',
    () => import('../tenants/state.command.ts'),
  ),
  topic('People', 'user', 'users of a tenant', () => import('../people/user.command.ts')),
  topic('People', 'role', 'roles of a tenant: named sets of permissions', () => import('../people/role.command.ts')),
  topic('People', 'session', 'open logins of users', () => import('../people/session.command.ts')),
  topic('People', 'key', 'keys that sign the access tokens of a tenant', () => import('../people/key.command.ts')),
  topic('People', 'client', 'programs that use legacy tokens', () => import('../people/client.command.ts')),
  topic(
    'Fleet',
    'migrate',
    'bring tenant databases to the version of this build',
    () => import('../schema/migrate.command.ts'),
  ),
  topic('Fleet', 'rollback', 'undo the last migration of one tenant', () => import('../schema/rollback.command.ts')),
  topic('Fleet', 'runs', 'migration runs, and their progress', () => import('../schema/runs.command.ts')),
  topic('Fleet', 'pool', 'databases made ahead for new tenants', () => import('../databases/pool.command.ts')),
  topic(
    'Fleet',
    'control',
    'the control database: migrations, logins, master key',
    () => import('../control/control.command.ts'),
  ),
  topic(
    'Servers',
    'server',
    'PostgreSQL servers that tenants are placed on',
    () => import('../servers/server.command.ts'),
  ),
  topic(
    'Servers',
    'move',
    'move a tenant to another server while it is served',
    () => import('../databases/move.command.ts'),
  ),
  topic(
    'Servers',
    'databases',
    'databases beside those that tenants have now',
    () => import('../databases/databases.command.ts'),
  ),
  topic(
    'Backup',
    'backup',
    'archives of tenants, their checks and drills',
    () => import('../archives/backup.command.ts'),
  ),
  topic(
    'Backup',
    'retention',
    'how long activities and audit entries are kept',
    () => import('../archives/retention/retention.command.ts'),
  ),
  topic('Look', 'list', 'list the tenants', () => import('../tenants/list.command.ts')),
  topic('Look', 'show', 'show one tenant', () => import('../tenants/show.command.ts')),
  topic(
    'Look',
    'status',
    'show versions and states of the fleet, and failed tenants',
    () => import('../schema/status.command.ts'),
  ),
  topic(
    'Look',
    'processes',
    'list the running processes and their connections',
    () => import('../tenants/processes.command.ts'),
  ),
  topic('Look', 'usage', 'show what tenants used', () => import('../tenants/usage.command.ts')),
  topic('Look', 'logs', 'list what operators changed, when and why', () => import('../tenants/logs.command.ts')),
  topic('Look', 'doctor', 'find what is wrong anywhere, and repair it', () => import('../doctor/doctor.command.ts')),
  topic(
    'Look',
    'console',
    'show the fleet in a browser, and run commands there',
    () => import('../console/console.command.ts'),
  ),
  topic(
    'Look',
    'completion',
    'print the script of a shell that completes commands',
    () => import('./completion.command.ts'),
  ),
];
