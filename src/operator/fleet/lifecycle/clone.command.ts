import { defineOperation } from '../../command/operation.ts';
import { argument, option } from '../../command/operation-fields.ts';
import { fieldsText } from '../../command/text-table.ts';
import type { EarlierData } from '../../databases/fill-database.ts';
import { readTenant } from '../../records/read-tenants.ts';
import { findTenant } from '../../records/tenants.ts';
import {
  fromField,
  momentField,
  requireOneChoice,
  restoreData,
  withoutMacField,
} from '../recovery/restore-data.ts';

const clone = defineOperation({
  name: 'clone',
  help: {
    description:
      'copy a tenant to a new slug, with its own key and login role, isolated; sessions and ' +
      'API clients are not copied',
    examples: [
      'clone acme acme-test',
      'clone acme acme-old --archive latest # look at archived data over HTTP',
    ],
  },
  fields: {
    slug: argument('slug'),
    newSlug: argument('text', { label: 'Slug of the copy' }),
    archive: option(
      '<name>',
      'with the data of this archive, in place of the present data; latest: the newest one',
      {
        kind: 'archive',
        isAdvanced: true,
      },
    ),
    at: option('<time>', 'with the data of that moment', momentField),
    from: fromField,
    withoutMac: withoutMacField,
  },
  effect: 'changes',
  handling: { opensArchives: ({ archive }) => archive !== undefined },
  async plan({ slug, newSlug, ...values }, { installation }) {
    requireOneChoice(values);
    const { planClone } = await import('./clone.ts');
    const plan = await planClone(installation, slug, newSlug);
    return {
      document: { ...plan, state: 'planned' },
      text: () =>
        `${newSlug} would be added on ${plan.server}, as a copy of ${slug}, isolated.` +
        (plan.leaves.length > 0 ? ` It would not have: ${plan.leaves.join(', ')}.` : ''),
    };
  },
  async run({ slug, newSlug, ...values }, { installation, output, progress, recordBirth }) {
    const { createPasswords } = await import('../../../accounts/auth/passwords.ts');
    const { cloneTenant, readLeft } = await import('./clone.ts');

    progress.step(`cloning ${slug}`);
    const clone = (data?: EarlierData) =>
      cloneTenant(installation, createPasswords(), slug, newSlug, data);

    const isPresent = Object.values(values).every(value => value === undefined);
    const { restored: _, ...facts } = isPresent
      ? { restored: await clone() }
      : await restoreData(
          installation,
          await findTenant(installation, slug),
          values,
          { progress, output },
          clone,
        );

    await recordBirth(newSlug);

    const document = { ...(await readTenant(installation, newSlug)), ...facts };
    const leaves = isPresent
      ? await readLeft(installation, await findTenant(installation, slug))
      : [];

    if (leaves.length > 0) {
      output.warn(`The clone does not have: ${leaves.join(', ')}. ${slug} still has it.`);
    }

    output.result(document, () => fieldsText(document));
  },
});

export const operations = [clone];
