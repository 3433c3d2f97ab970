import { defineOperation } from '../command/operation.ts';
import { argument, requiredOption } from '../command/operation-fields.ts';
import { fieldsText } from '../command/text-table.ts';
import { countText } from '../command/texts.ts';

const add = defineOperation({
  name: 'client add',
  description: 'add a program that acts for a user with legacy tokens; its secret is shown only once',
  fields: { slug: argument('slug'), email: argument('email'), name: requiredOption('<name>', 'name of the program') },
  examples: ['client add acme till@acme.test --name "Till in Graz"'],
  access: 'installation',
  effect: 'changes',
  async plan({ slug, email, name }, { installation }) {
    const { planClient } = await import('./clients.ts');
    const planned = await planClient(installation, slug, email, name);
    const { user } = planned;
    return {
      document: { name: planned.name, email: user.email, state: 'planned' },
      text: () => `The client ${planned.name} would be added, which acts for ${user.email}.`,
    };
  },
  async run({ slug, email, name }, { installation, output }) {
    const { addClient } = await import('./clients.ts');
    const added = await addClient(installation, slug, email, name);
    output.result(added, () => fieldsText(added));
  },
});

const list = defineOperation({
  name: 'client list',
  description: 'list the API clients of a tenant, with the number of their tokens and uses',
  fields: { slug: argument('slug') },
  examples: ['client list acme'],
  access: 'installation',
  effect: 'reads',
  isList: true,
  async run({ slug }, { installation, output }) {
    const { listClients } = await import('../tenants/read-users.ts');
    const clients = await listClients(installation, slug);
    output.list(clients, { row: client => client, name: ({ id }) => id, empty: 'No API clients.' });
  },
});

const revoke = defineOperation({
  name: 'client revoke',
  description: 'refuse an API client and every token that was issued to it',
  fields: { slug: argument('slug'), id: argument('text') },
  examples: ['client revoke acme client-3f2a9c0d1b4e5f60 --reason "secret was stolen"'],
  access: 'installation',
  effect: 'locks out',
  async plan({ slug, id }, { installation }) {
    const { planClientRevocation } = await import('./clients.ts');
    const { state: _, ...client } = await planClientRevocation(installation, slug, id);
    const tokens = countText(client.tokens, 'token');
    return {
      document: { ...client, state: 'planned' },
      text: () => `Client ${id} (${client.name}) and its ${tokens} would be refused. It was used ${client.uses} times.`,
      steady: `${id} (${client.name})`,
      confirm: { name: slug, consequence: `will refuse client ${id} (${client.name}) and its ${tokens}` },
    };
  },
  async run({ slug, id }, { installation, output }) {
    const { revokeClient } = await import('./clients.ts');
    await revokeClient(installation, slug, id);
    output.result({ id, state: 'revoked' }, () => `Client ${id} and its tokens are revoked.`);
  },
});

export const operations = [add, list, revoke];
