import { defineOperation } from './operation.ts';
import { argument } from './operation-fields.ts';
import { fieldsText } from './text-table.ts';

const show = defineOperation({
  name: 'show',
  description: 'show one tenant',
  fields: { slug: argument('slug') },
  examples: ['show acme'],
  access: 'statements',
  effect: 'reads',
  async run({ slug }, { installation, output }) {
    const { showTenant } = await import('../tenants/read-tenants.ts');
    const { keys, features, ...fields } = await showTenant(installation, slug);
    output.result({ ...fields, features, keys }, () =>
      [
        fieldsText({ ...fields, features: features.join(', ') || '–' }),
        ...keys.map(key => fieldsText({ 'signing key': `${key.kid}  ${key.status}  since ${key.createdAt}` })),
      ].join('\n'),
    );
  },
});

export const operations = [show];
