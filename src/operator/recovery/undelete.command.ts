import type { Context } from '../command/operation.ts';
import { defineOperation } from '../command/operation.ts';
import { argument } from '../command/operation-fields.ts';

const undelete = defineOperation({
  name: 'undelete',
  help: {
    description: 'serve a deleted tenant again, with the data that it has',
    examples: ['undelete acme --reason "the contract goes on"'],
    more: `For earlier data of a tenant: bin/backoffice restore. A purged tenant is gone for good.`,
  },
  fields: { slug: argument('slug') },
  effect: 'changes',
  handling: { control: 'rows' },
  async plan({ slug }, { installation }) {
    const { changeState } = await import('../registry/transitions.ts');
    const { guid, from, to } = await changeState(installation, slug, 'undelete', true);

    return {
      document: { slug, guid, from, to, state: 'planned' },
      text: () => (from === to ? `${slug} is ${to} already.` : `${slug} would be served again.`),
    };
  },
  run: ({ slug }, context) => undeleteTenant(slug, context),
});

async function undeleteTenant(slug: string, { installation, output }: Context): Promise<void> {
  const { changeState } = await import('../registry/transitions.ts');
  const { findDatabase } = await import('../databases/protocol/lost-database.ts');

  const { guid, to: status } = await changeState(installation, slug, 'undelete');
  const { server, lost } = await findDatabase(installation, guid);

  if (lost === undefined) {
    output.warn(
      `Server ${server} cannot be queried, so it is not known whether the database of ${slug} ` +
        'exists. Check both: bin/backoffice doctor',
    );
  }

  output.result({ slug, guid, status, isDatabaseLost: lost ?? null }, () =>
    lost
      ? `${slug} is ${status}, but it is not served: its database does not exist or is ` +
        `incomplete. Restore it: bin/backoffice restore ${slug} --lost`
      : `${slug} is ${status}.`,
  );
}

export const operations = [undelete];
