import { type Command, Option } from 'commander';
import { type TenantFilter, type TenantSummary, tenantSorts } from '../tenants/read-tenants.ts';
import { withStatements } from './command.ts';
import { jsonOption, type OutputOptions } from './output.ts';
import { printList } from './print-list.ts';

interface ListOptions extends OutputOptions, Omit<TenantFilter, 'search'> {
  wide?: boolean;
}

const states = ['provisioning', 'active', 'suspended', 'deleted'] as const;

/** Adds `list`: the tenants, or those that filters select. */
export function addListCommand(program: Command): void {
  program
    .command('list')
    .description('list the tenants, or those that have all of the given properties')
    .argument('[text]', 'a part of the slug, the name or the guid')
    .addOption(new Option('--status <status>', 'only tenants in this state').choices(states))
    .option('--server <name>', 'only tenants on this server')
    .option('--version <version>', 'only tenants at this schema version; its number is enough, such as 0021')
    .addOption(
      new Option('--sort <column>', 'order; with - in front, the other way round')
        .choices(tenantSorts.flatMap(name => [name, `-${name}`]))
        .default('slug'),
    )
    .option('--wide', 'all columns at full width, as -o wide')
    .option(...jsonOption)
    .action(
      withStatements(async (control, search: string | undefined, { wide, ...options }: ListOptions) => {
        const { listTenants } = await import('../tenants/read-tenants.ts');
        const { status, server, version, sort } = options;
        const isFiltered = [search, status, server, version].some(value => value !== undefined);
        printList(
          options,
          await listTenants(control, { search, status, server, version, sort }),
          {
            row: ({ slug, name, status, schemaVersion, server, guid }) => ({
              ...{ slug, name, status, schemaVersion, server, guid },
            }),
            wide: ({ id, appId, database, createdAt }) => ({ id, appId, database, created: createdAt }),
            name: ({ slug }: TenantSummary) => slug,
            empty: isFiltered
              ? 'No tenant has these properties.'
              : 'There is no tenant. Make one: npx backoffice provision --help',
          },
          wide,
        );
      }),
    );
}
