import { defineOperation } from '../command/operation.ts';
import { flag, option, optionalArgument } from '../command/operation-fields.ts';
import { tenantSorts } from './read-tenants.ts';

const states = ['provisioning', 'active', 'suspended', 'deleted'] as const;

const list = defineOperation({
  name: 'list',
  description: 'list the tenants, or those that have all of the given properties',
  fields: {
    text: optionalArgument('text', { description: 'a part of the slug, the name or the guid' }),
    status: option('<status>', 'only tenants in this state', { choices: states }),
    server: option('<name>', 'only tenants on this server', { kind: 'server' }),
    version: option('<version>', 'only tenants at this schema version; its number is enough, such as 0021', {
      kind: 'version',
    }),
    sort: option('<column>', 'order; with - in front, the other way round', {
      choices: tenantSorts.flatMap(name => [name, `-${name}`] as const),
      default: 'slug',
    }),
    wide: flag('all columns at full width, as -o wide'),
  },
  examples: ['list', 'list north --status active --sort -created', 'list -o name'],
  access: 'statements',
  effect: 'reads',
  isList: true,
  async run({ text: search, status, server, version, sort, wide }, { installation, output }) {
    const { listTenants } = await import('./read-tenants.ts');
    const isFiltered = [search, status, server, version].some(value => value !== undefined);
    output.list(
      await listTenants(installation, { search, status, server, version, sort }),
      {
        row: ({ slug, name, status, schemaVersion, server, guid }) => ({
          ...{ slug, name, status, schemaVersion, server, guid },
        }),
        wide: ({ id, appId, database, createdAt }) => ({ id, appId, database, created: createdAt }),
        name: ({ slug }) => slug,
        empty: isFiltered
          ? 'No tenant has these properties.'
          : 'There is no tenant. Make one: npx backoffice provision --help',
      },
      wide,
    );
  },
});

export const operations = [list];
