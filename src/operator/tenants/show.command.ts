import { defineOperation } from '../command/operation.ts';
import { argument } from '../command/operation-fields.ts';
import { fieldsText } from '../command/text-table.ts';

const show = defineOperation({
  name: 'show',
  description: 'show one tenant',
  fields: { slug: argument('slug') },
  examples: ['show acme'],
  access: 'statements',
  effect: 'reads',
  async run({ slug }, { installation, output }) {
    const { showTenant } = await import('./read-tenants.ts');
    const { keys, features, otherDatabases, ...fields } = await showTenant(installation, slug);
    output.result({ ...fields, features, otherDatabases, keys }, () =>
      [
        fieldsText({ ...fields, features: features.join(', ') || '–' }),
        ...(otherDatabases.length > 0
          ? [fieldsText({ 'other databases': `${countStates(otherDatabases)}: npx backoffice databases ${slug}` })]
          : []),
        ...keys.map(key => fieldsText({ 'signing key': `${key.kid} ${key.status} since ${key.createdAt}` })),
      ].join('\n'),
    );
  },
});

/** Returns how many databases have each state, such as `1 kept, 2 filled`. */
function countStates(databases: readonly { readonly state: string }[]): string {
  const counts = Map.groupBy(databases, ({ state }) => state);
  return [...counts].map(([state, { length }]) => `${length} ${state}`).join(', ');
}

export const operations = [show];
