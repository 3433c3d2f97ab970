import type { Operation } from './operation.ts';

/** The headings of the help, in its order. */
export const groups = ['Tenants', 'People', 'Fleet', 'Servers', 'Backup', 'Look'] as const;

/** Operations whose names begin with the same word. */
export interface Topic {
  readonly name: string;
  readonly group: (typeof groups)[number];
  /** What they do, in the list of all commands: at most 60 characters, so that it fits into 80 columns. */
  readonly summary: string;
  /** Loads the module that has them. */
  readonly load: () => Promise<{ readonly operations: readonly Operation[] }>;
}

/** Returns the operations of a topic. */
export async function operationsOf({ name, load }: Topic): Promise<readonly Operation[]> {
  const { operations } = await load();
  return operations.filter(operation => operation.name.split(' ')[0] === name);
}

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
    () => import('./provision-operations.ts'),
  ),
  topic('Tenants', 'edit', 'change the name or the features of a tenant', () => import('./edit-operations.ts')),
  topic('Tenants', 'suspend', 'stop serving a tenant', () => import('./state-operations.ts')),
  topic('Tenants', 'resume', 'serve a tenant again', () => import('./state-operations.ts')),
  topic('Tenants', 'delete', 'take a tenant out of service, and keep its data', () => import('./state-operations.ts')),
  topic(
    'Tenants',
    'restore',
    'bring a deleted tenant back, or earlier data of a tenant',
    () => import('./restore-operations.ts'),
  ),
  topic('Tenants', 'purge', 'remove a deleted tenant with its data for good', () => import('./purge-operations.ts')),
  topic('Tenants', 'clone', 'copy a tenant to a new slug', () => import('./clone-operations.ts')),
  topic(
    'Tenants',
    'isolate',
    'send no mail of a tenant, and refuse its legacy clients',
    () => import('./state-operations.ts'),
  ),
  topic('Tenants', 'packs', 'reference data of public standards', () => import('./packs-operations.ts')),
  topic(
    'Tenants',
    'export',
    'write the data of a tenant into files, for the tenant',
    () => import('./export-operations.ts'),
  ),
  topic(
    'Tenants',
    'refresh',
    'read the data of a tenant again, after changes by psql',
    () => import('./state-operations.ts'),
  ),
  topic('People', 'user', 'users of a tenant', () => import('./user-operations.ts')),
  topic('People', 'role', 'roles of a tenant: named sets of permissions', () => import('./role-operations.ts')),
  topic('People', 'session', 'open logins of users', () => import('./session-operations.ts')),
  topic('People', 'key', 'keys that sign the access tokens of a tenant', () => import('./key-operations.ts')),
  topic('People', 'client', 'programs that use legacy tokens', () => import('./client-operations.ts')),
  topic(
    'Fleet',
    'migrate',
    'bring tenant databases to the version of this build',
    () => import('./migrate-operations.ts'),
  ),
  topic('Fleet', 'rollback', 'undo the last migration of one tenant', () => import('./rollback-operations.ts')),
  topic('Fleet', 'runs', 'migration runs, and their progress', () => import('./runs-operations.ts')),
  topic('Fleet', 'pool', 'databases made ahead for new tenants', () => import('./pool-operations.ts')),
  topic(
    'Fleet',
    'control',
    'the control database: migrations, logins, master key',
    () => import('./control-operations.ts'),
  ),
  topic('Servers', 'server', 'PostgreSQL servers that tenants are placed on', () => import('./server-operations.ts')),
  topic('Servers', 'move', 'move a tenant to another server while it is served', () => import('./move-operations.ts')),
  topic(
    'Servers',
    'databases',
    'databases beside those that tenants have now',
    () => import('./databases-operations.ts'),
  ),
  topic('Backup', 'backup', 'archives of tenants, their checks and drills', () => import('./backup-operations.ts')),
  topic(
    'Backup',
    'retention',
    'how long activities and audit entries are kept',
    () => import('./retention-operations.ts'),
  ),
  topic('Look', 'list', 'list the tenants', () => import('./list-operations.ts')),
  topic('Look', 'show', 'show one tenant', () => import('./show-operations.ts')),
  topic(
    'Look',
    'status',
    'show versions and states of the fleet, and failed tenants',
    () => import('./status-operations.ts'),
  ),
  topic(
    'Look',
    'processes',
    'list the running processes and their connections',
    () => import('./processes-operations.ts'),
  ),
  topic('Look', 'usage', 'show what tenants used', () => import('./usage-operations.ts')),
  topic('Look', 'logs', 'list what operators changed, when and why', () => import('./logs-operations.ts')),
  topic('Look', 'doctor', 'find what is wrong anywhere, and repair it', () => import('./doctor-operations.ts')),
  topic(
    'Look',
    'completion',
    'print the script of a shell that completes commands',
    () => import('./completion-operations.ts'),
  ),
];
