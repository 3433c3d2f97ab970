import { defineChange } from '../command/define-change.ts';
import { defineList } from '../command/define-list.ts';
import { argument } from '../command/operation-fields.ts';

const list = defineList({
  name: 'key list',
  help: {
    description: 'list the signing keys of a tenant',
    examples: ['key list acme'],
  },
  fields: { slug: argument('slug') },
  async items({ slug }, { installation }) {
    const { listKeys } = await import('../registry/read-tenants.ts');
    return listKeys(installation, slug);
  },
  nameOf: ({ kid }) => kid,
  empty: ({ slug }) => `${slug} has no signing key.`,
});

const rotate = defineChange({
  name: 'key rotate',
  help: {
    description:
      'sign with a new key; tokens signed with the previous key stay valid until they expire',
    examples: ['key rotate acme --reason "yearly rotation"'],
  },
  fields: { slug: argument('slug') },
  effect: 'changes',
  handling: { control: 'rows' },
  async change({ slug }, { installation }, isDryRun) {
    const { rotateKey } = await import('./keys.ts');
    const { kid, previous } = await rotateKey(installation, slug, isDryRun);
    const kept =
      previous === null ? '' : ` Tokens of key ${previous} stay valid until they expire.`;
    return {
      document: isDryRun ? { previous } : { kid },
      plan: `${slug} would sign with a new key.${kept}`,
      done: `${slug} now signs with key ${kid}.`,
    };
  },
});

const disable = defineChange({
  name: 'key disable',
  help: {
    description:
      'refuse every token of a key at once; if the key is the active one, a new key replaces it',
    examples: ['key disable acme 5f0a6c1e-9d1b-4f5e-8f3b-0a4c8d2e7b61 --reason "key was stolen"'],
  },
  fields: { slug: argument('slug'), kid: argument('kid') },
  effect: 'locks out',
  handling: { control: 'rows' },
  async change({ slug, kid }, { installation }, isDryRun) {
    const { disableKey } = await import('./keys.ts');
    const { isReplaced } = await disableKey(installation, slug, kid, isDryRun);
    const replaced = isReplaced ? ' A new key would replace it.' : '';

    return {
      document: { kid, status: 'disabled' },
      facts: { isReplaced },
      plan: `Every token of key ${kid} would be refused, and its users log in again.${replaced}`,
      confirm: {
        name: slug,
        consequence: `will refuse every token of key ${kid}: its users log in again`,
      },
      done: `Key ${kid} is disabled: its tokens are refused, and its users log in again.`,
    };
  },
});

export const operations = [list, rotate, disable];
