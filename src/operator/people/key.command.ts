import { defineOperation } from '../command/operation.ts';
import { argument } from '../command/operation-fields.ts';

const list = defineOperation({
  name: 'key list',
  description: 'list the signing keys of a tenant',
  fields: { slug: argument('slug') },
  examples: ['key list acme'],
  access: 'statements',
  effect: 'reads',
  isList: true,
  async run({ slug }, { installation, output }) {
    const { listKeys } = await import('../tenants/read-tenants.ts');
    const keys = await listKeys(installation, slug);
    output.list(keys, { row: key => key, name: ({ kid }) => kid, empty: `${slug} has no signing key.` });
  },
});

const rotate = defineOperation({
  name: 'key rotate',
  description: 'sign with a new key; tokens signed with the previous key stay valid until they expire',
  fields: { slug: argument('slug') },
  examples: ['key rotate acme --reason "yearly rotation"'],
  access: 'installation',
  effect: 'changes',
  async plan({ slug }, { installation }) {
    const { planKeyChange } = await import('./keys.ts');
    const plan = await planKeyChange(installation, slug);
    return {
      document: { ...plan, state: 'planned' },
      text: () => `${slug} would sign with a new key. Tokens of key ${plan.kid} stay valid until they expire.`,
    };
  },
  async run({ slug }, { installation, output }) {
    const { rotateKey } = await import('./keys.ts');
    const kid = await rotateKey(installation, slug);
    output.result({ kid }, () => `${slug} now signs with key ${kid}.`);
  },
});

const disable = defineOperation({
  name: 'key disable',
  description: 'refuse every token of a key at once; if the key is the active one, a new key replaces it',
  fields: { slug: argument('slug'), kid: argument('kid') },
  examples: ['key disable acme 5f0a6c1e-9d1b-4f5e-8f3b-0a4c8d2e7b61 --reason "key was stolen"'],
  access: 'installation',
  effect: 'locks out',
  async plan({ slug, kid }, { installation }) {
    const { planKeyChange } = await import('./keys.ts');
    const plan = await planKeyChange(installation, slug, kid);
    const replaced = plan.isReplaced ? ' A new key would replace it.' : '';
    return {
      document: { ...plan, state: 'planned' },
      text: () => `Every token of key ${kid} would be refused, and its users log in again.${replaced}`,
      confirm: { name: slug, consequence: `will refuse every token of key ${kid}: its users log in again` },
    };
  },
  async run({ slug, kid }, { installation, output }) {
    const { disableKey } = await import('./keys.ts');
    await disableKey(installation, slug, kid);
    output.result(
      { kid, status: 'disabled' },
      () => `Key ${kid} is disabled: its tokens are refused, and its users log in again.`,
    );
  },
});

export const operations = [list, rotate, disable];
