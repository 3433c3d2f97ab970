import { maxBytesField } from '../backup/restore/max-bytes.ts';
import { defineOperation } from '../command/operation.ts';
import { argument, option, optionList } from '../command/operation-fields.ts';
import { fieldsText } from '../command/text-table.ts';
import type { EarlierData } from '../databases/copy/fill-database.ts';
import { roomText } from '../databases/copy/room.ts';
import {
  fromField,
  requireOneChoice,
  restoreData,
  untilField,
  withoutMacField,
} from '../recovery/restore-data.ts';
import { readTenant } from '../registry/read-tenants.ts';
import { findTenant } from '../registry/tenants.ts';

const clone = defineOperation({
  name: 'clone',
  help: {
    description:
      'copy a tenant to a new slug, with its own key and login role, isolated; sessions, API ' +
      'clients and keys of programs are not copied, and all users are disabled but those of --login',
    examples: [
      'clone acme acme-test --login nora@acme.test # Nora alone may log in to it',
      'clone acme acme-old --archive latest # look at archived data over HTTP',
    ],
  },
  fields: {
    slug: argument('slug'),
    newSlug: argument('text', { label: 'Slug of the copy' }),
    login: optionList(
      '<email>',
      'a user of the tenant who may log in to the copy; all others are disabled',
      {
        label: 'Users who may log in',
        kind: 'email',
      },
    ),
    archive: option(
      '<name>',
      'with the data of this archive, in place of the present data; latest: the newest one',
      {
        kind: 'archive',
        isAdvanced: true,
      },
    ),
    from: fromField,
    until: untilField,
    withoutMac: withoutMacField,
    maxBytes: maxBytesField,
  },
  effect: 'changes',
  handling: { opensArchives: ({ archive }) => archive !== undefined },
  async plan({ slug, newSlug, login: logins, ...values }, { installation }) {
    requireOneChoice(values);
    const { planClone } = await import('./clone.ts');
    const plan = await planClone(installation, { slug, newSlug, logins }, isOfPresent(values));
    return {
      document: { ...plan, state: 'planned' },
      text: () =>
        `${newSlug} would be added on ${plan.server}, as a copy of ${slug}, isolated. ${openText(plan.logins)}` +
        (plan.sourceRefusesPasswords ? ` ${passwordsText(slug, newSlug)}` : '') +
        (plan.leaves.length > 0 ? ` It would not have: ${plan.leaves.join(', ')}.` : '') +
        (plan.room ? ` ${roomText(plan.room)}` : ''),
    };
  },
  async run(
    { slug, newSlug, login: logins, ...values },
    { installation, output, progress, recordBirth },
  ) {
    const { createPasswords } = await import('../../accounts/auth/passwords.ts');
    const { cloneTenant, readLeft, refusesPasswords } = await import('./clone.ts');

    progress.step(`cloning ${slug}`);
    const clone = (data?: EarlierData) =>
      cloneTenant(installation, createPasswords(), { slug, newSlug, logins }, data);

    const isPresent = isOfPresent(values);
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
    const source = await findTenant(installation, slug);
    const leaves = isPresent ? await readLeft(installation, source) : [];

    if (leaves.length > 0) {
      output.warn(`The clone does not have: ${leaves.join(', ')}. ${slug} still has it.`);
    }

    if (await refusesPasswords(installation, source)) {
      output.warn(passwordsText(slug, newSlug));
    }

    output.result(document, () => [fieldsText(document), '', openText(logins)].join('\n'));
  },
});

function openText(logins: readonly string[]): string {
  return logins.length === 0
    ? 'All of its users are disabled: name those who may log in by --login, or enable them (user enable).'
    : `All of its users are disabled but ${logins.join(', ')}.`;
}

function passwordsText(slug: string, newSlug: string): string {
  return `${slug} refuses passwords. ${newSlug} has no providers, and accepts the passwords of those who may log in.`;
}

export const operations = [clone];

/** True for a clone of the data that the tenant has now. */
function isOfPresent({ archive, from }: Record<'archive' | 'from', string | undefined>): boolean {
  return archive === undefined && from === undefined;
}
