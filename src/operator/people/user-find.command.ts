import { defineOperation } from '../command/operation.ts';
import { argument } from '../command/operation-fields.ts';

export const findUserOperation = defineOperation({
  name: 'user find',
  description: 'find the users with an e-mail address, in all tenants',
  fields: { email: argument('text') },
  examples: ['user find bob@acme.test'],
  access: 'statements',
  effect: 'reads',
  isList: true,
  async run({ email: address }, { installation, output }) {
    const { normaliseEmail } = await import('../../auth/email.ts');
    const { findUsers } = await import('../tenants/read-users.ts');
    const email = normaliseEmail(address);
    output.list(await findUsers(installation, email), {
      row: ({ tenant, status, email, role, scope, state, guid }) => ({
        ...{ tenant, status, email, role, scope, state, guid },
      }),
      wide: ({ firstName, lastName, entityId }) => ({ firstName, lastName, entityId }),
      name: ({ tenant }) => tenant,
      empty: `No tenant has a user ${email}.`,
    });
  },
});
