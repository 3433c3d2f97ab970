import { defineChange } from '../command/define-change.ts';
import { defineList } from '../command/define-list.ts';
import { argument, requiredOption } from '../command/operation-fields.ts';
import { fieldsText } from '../command/text-table.ts';
import { countText } from '../command/texts.ts';

const add = defineChange({
  name: 'client add',
  help: {
    description:
      'add a program that acts for a user with legacy tokens; its secret is shown only once',
    examples: ['client add acme till@acme.test --name "Till in Graz"'],
  },
  fields: {
    slug: argument('slug'),
    email: argument('email'),
    name: requiredOption('<name>', 'name of the program', {
      kind: 'text',
      label: 'Name of the program',
    }),
  },
  effect: 'changes',
  async change({ slug, email, name }, { installation }, isDryRun) {
    const { addClient } = await import('./clients.ts');
    const { id, secret, ...client } = await addClient(installation, slug, email, name, isDryRun);
    return {
      document: isDryRun ? client : { id, secret },
      plan: `The client ${client.name} would be added, which acts for ${client.email}.`,
      done: fieldsText({ id, secret }),
    };
  },
});

const list = defineList({
  name: 'client list',
  help: {
    description: 'list the API clients of a tenant, with the number of their tokens and uses',
    examples: ['client list acme'],
  },
  fields: { slug: argument('slug') },
  async items({ slug }, { installation }) {
    const { listClients } = await import('./read-users.ts');
    return listClients(installation, slug);
  },
  nameOf: ({ id }) => id,
  empty: 'No API clients.',
});

const revoke = defineChange({
  name: 'client revoke',
  help: {
    description: 'refuse an API client and every token that was issued to it',
    examples: ['client revoke acme client-3f2a9c0d1b4e5f60 --reason "secret was stolen"'],
  },
  fields: { slug: argument('slug'), id: argument('client', { label: 'Program' }) },
  effect: 'locks out',
  async change({ slug, id }, { installation }, isDryRun) {
    const { revokeClient } = await import('./clients.ts');
    const client = await revokeClient(installation, slug, id, isDryRun);
    const { name, uses } = client;
    const tokens = countText(client.tokens, 'token');

    return {
      document: { id, state: 'revoked' },
      facts: client,
      plan:
        `Client ${id} (${name}) and its ${tokens} would be refused. It was used ` +
        `${countText(uses, 'time')}.`,
      steady: `${id} (${name})`,
      confirm: { name: slug, consequence: `will refuse client ${id} (${name}) and its ${tokens}` },
      done: `Client ${id} and its tokens are revoked.`,
    };
  },
});

export const operations = [add, list, revoke];
