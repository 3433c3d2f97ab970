import type { Command } from 'commander';

/** The headings of the help, in its order. */
export const groups = ['Tenants', 'People', 'Fleet', 'Servers', 'Backup', 'Look'] as const;

/** A command of the top level. */
interface Topic {
  readonly name: string;
  readonly group: (typeof groups)[number];
  /** What it does, in the list of all commands: at most 60 characters, so that it fits into 80 columns. */
  readonly summary: string;
  /** Loads the module of the command, and returns the function that adds it and its subcommands to the program. */
  readonly load: () => Promise<(program: Command) => void>;
}

const topic = (group: Topic['group'], name: string, summary: string, load: Topic['load']): Topic => ({
  group,
  name,
  summary,
  load,
});

/**
 * All commands. A command loads the module of its topic only, because most of the time of a short command is the
 * loading of modules; help and completion need no module of another topic.
 */
export const catalogue: readonly Topic[] = [
  topic(
    'Tenants',
    'provision',
    'make a tenant, or one from each manifest of a folder',
    async () => (await import('./provision-command.ts')).addProvisionCommand,
  ),
  topic(
    'Tenants',
    'edit',
    'change the name or the features of a tenant',
    async () => (await import('./edit-command.ts')).addEditCommand,
  ),
  topic('Tenants', 'suspend', 'stop serving a tenant', async () => (await import('./state-commands.ts')).addSuspend),
  topic('Tenants', 'resume', 'serve a tenant again', async () => (await import('./state-commands.ts')).addResume),
  topic(
    'Tenants',
    'delete',
    'take a tenant out of service, and keep its data',
    async () => (await import('./state-commands.ts')).addDelete,
  ),
  topic(
    'Tenants',
    'restore',
    'bring a deleted tenant back, or earlier data of a tenant',
    async () => (await import('./restore-commands.ts')).addRestoreCommand,
  ),
  topic(
    'Tenants',
    'purge',
    'remove a deleted tenant with its data for good',
    async () => (await import('./purge-command.ts')).addPurge,
  ),
  topic('Tenants', 'clone', 'copy a tenant to a new slug', async () => (await import('./clone-command.ts')).addClone),
  topic(
    'Tenants',
    'isolate',
    'send no mail of a tenant, and refuse its legacy clients',
    async () => (await import('./state-commands.ts')).addIsolate,
  ),
  topic(
    'Tenants',
    'packs',
    'reference data of public standards',
    async () => (await import('./packs-commands.ts')).addPacksCommands,
  ),
  topic(
    'Tenants',
    'export',
    'write the data of a tenant into files, for the tenant',
    async () => (await import('./export-command.ts')).addExportCommand,
  ),
  topic(
    'Tenants',
    'refresh',
    'read the data of a tenant again, after changes by psql',
    async () => (await import('./state-commands.ts')).addRefresh,
  ),
  topic('People', 'user', 'users of a tenant', async () => (await import('./user-commands.ts')).addUserCommands),
  topic(
    'People',
    'role',
    'roles of a tenant: named sets of permissions',
    async () => (await import('./role-commands.ts')).addRoleCommands,
  ),
  topic(
    'People',
    'session',
    'open logins of users',
    async () => (await import('./session-commands.ts')).addSessionCommands,
  ),
  topic(
    'People',
    'key',
    'keys that sign the access tokens of a tenant',
    async () => (await import('./key-commands.ts')).addKeyCommands,
  ),
  topic(
    'People',
    'client',
    'programs that use legacy tokens',
    async () => (await import('./client-commands.ts')).addClientCommands,
  ),
  topic(
    'Fleet',
    'migrate',
    'bring tenant databases to the version of this build',
    async () => (await import('./migrate-command.ts')).addMigrateCommand,
  ),
  topic(
    'Fleet',
    'rollback',
    'undo the last migration of one tenant',
    async () => (await import('./rollback-command.ts')).addRollbackCommand,
  ),
  topic(
    'Fleet',
    'runs',
    'migration runs, and their progress',
    async () => (await import('./runs-commands.ts')).addRunsCommands,
  ),
  topic(
    'Fleet',
    'pool',
    'databases made ahead for new tenants',
    async () => (await import('./pool-commands.ts')).addPoolCommands,
  ),
  topic(
    'Fleet',
    'control',
    'the control database: migrations, logins, master key',
    async () => (await import('./control-command.ts')).addControlCommands,
  ),
  topic(
    'Servers',
    'server',
    'PostgreSQL servers that tenants are placed on',
    async () => (await import('./server-commands.ts')).addServerCommands,
  ),
  topic(
    'Servers',
    'move',
    'move a tenant to another server while it is served',
    async () => (await import('./move-commands.ts')).addMoveCommands,
  ),
  topic(
    'Backup',
    'backup',
    'archives of tenants, and their proofs',
    async () => (await import('./backup-commands.ts')).addBackupCommands,
  ),
  topic(
    'Backup',
    'retention',
    'how long activities and audit entries are kept',
    async () => (await import('./retention-commands.ts')).addRetentionCommands,
  ),
  topic('Look', 'list', 'list the tenants', async () => (await import('./list-command.ts')).addListCommand),
  topic('Look', 'show', 'show one tenant', async () => (await import('./show-command.ts')).addShowCommand),
  topic(
    'Look',
    'status',
    'show versions and states of the fleet, and failed tenants',
    async () => (await import('./status-command.ts')).addStatusCommand,
  ),
  topic(
    'Look',
    'processes',
    'list the running processes and their connections',
    async () => (await import('./processes-command.ts')).addProcessesCommand,
  ),
  topic('Look', 'usage', 'show what tenants used', async () => (await import('./usage-command.ts')).addUsageCommand),
  topic(
    'Look',
    'logs',
    'list what operators changed, when and why',
    async () => (await import('./logs-command.ts')).addLogsCommand,
  ),
  topic(
    'Look',
    'doctor',
    'find what is wrong anywhere, and repair it',
    async () => (await import('./doctor-command.ts')).addDoctorCommand,
  ),
  topic(
    'Look',
    'completion',
    'print the script of a shell that completes commands',
    async () => (await import('./completion-command.ts')).addCompletionCommand,
  ),
];
