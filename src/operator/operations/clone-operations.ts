import { summarise } from '../tenants/read-tenants.ts';
import { defineOperation } from './operation.ts';
import { argument } from './operation-fields.ts';
import { fieldsText } from './text-table.ts';

const clone = defineOperation({
  name: 'clone',
  description:
    'copy a tenant to a new slug, with its own key and login role, isolated; sessions and API clients are not copied',
  fields: { slug: argument('slug'), newSlug: argument('text') },
  examples: ['clone acme acme-test'],
  access: 'installation',
  effect: 'changes',
  async run({ slug, newSlug }, { installation, output, progress }) {
    const { createPasswords } = await import('../../auth/passwords.ts');
    const { cloneTenant } = await import('../provisioning/clone.ts');
    progress.step(`cloning ${slug}`);
    const summary = summarise(await cloneTenant(installation, createPasswords(), slug, newSlug));
    output.result(summary, () => fieldsText(summary));
  },
});

export const operations = [clone];
