import { defineOperation } from '../command/operation.ts';
import { argument, option, optionList } from '../command/operation-fields.ts';
import { tableText } from '../command/text-table.ts';

const edit = defineOperation({
  name: 'edit',
  description: 'change the name, the application or the features of a tenant',
  fields: {
    slug: argument('slug'),
    name: option('<name>', 'name of the company'),
    appId: option('<id>', 'application identifier'),
    appUrl: option('<address>', 'pages that links in mails lead to, as APP_URL; none: those of APP_URL'),
    enable: optionList('<feature>', 'a feature to enable, such as legacyTokens; may be repeated'),
    disable: optionList('<feature>', 'a feature to disable; may be repeated'),
  },
  examples: [
    'edit acme --name "Acme International Ltd" --reason "renamed"',
    "edit acme --app-url 'https://acme.example.com/{action}#token={token}'",
    'edit acme --enable legacyTokens --dry-run',
  ],
  access: 'statements',
  effect: 'changes',
  async plan({ slug, ...values }, { installation }) {
    const { planEdit } = await import('./edit-tenant.ts');
    const { guid, changes } = await planEdit(installation, slug, values);
    return { document: { slug, guid, state: 'planned', changes }, text: () => changesText(slug, changes) };
  },
  async run({ slug, ...values }, { installation, output }) {
    const { editTenant } = await import('./edit-tenant.ts');
    const { guid, changes } = await editTenant(installation, slug, values);
    output.result({ slug, guid, state: 'changed', changes }, () => changesText(slug, changes));
  },
});

export const operations = [edit];

function changesText(slug: string, changes: readonly object[]): string {
  return tableText(changes, `${slug} has these values already.`);
}
