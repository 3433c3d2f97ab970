import { scopes } from '../../control/scopes.ts';
import { defineChange } from '../command/define-change.ts';
import { defineList } from '../command/define-list.ts';
import {
  argument,
  option,
  optionList,
  parseId,
  requiredOption,
} from '../command/operation-fields.ts';
import { fieldsText } from '../command/text-table.ts';
import { countText } from '../command/texts.ts';
import { keyOperations } from './program-key.command.ts';
import { parseProgram, programText } from './program-text.ts';

const add = defineChange({
  name: 'program add',
  help: {
    description: 'add a program, which calls the API with keys of its own and does not log in',
    examples: [
      'program add acme --name "Nightly import" --role Member --scope All',
      'program add acme --name Till --role Member --scope All --network 192.0.2.0/24',
    ],
  },
  fields: {
    slug: argument('slug'),
    name: requiredOption('<name>', 'name by which people recognise the program', {
      kind: 'text',
    }),
    role: requiredOption('<role>', 'role of the tenant', { kind: 'role' }),
    scope: requiredOption('<scope>', 'data that the program may use: of its entity, or all', {
      choices: scopes,
    }),
    entity: option('<id>', 'entity that the program belongs to', {
      label: 'Number of the entity',
      kind: 'text',
      parse: parseId,
      isAdvanced: true,
    }),
    network: optionList('<network>', 'an address, or a network in CIDR notation, of its clients', {
      label: 'Networks',
      kind: 'text',
      otherwise: 'its keys are accepted from everywhere',
    }),
  },
  effect: 'changes',
  async change(
    { slug, entity: entityId = null, network: networks, ...fields },
    { installation },
    isDryRun,
  ) {
    const { addProgramTo } = await import('./programs.ts');
    const program = { ...fields, entityId, networks };
    const { id, guid, ...added } = await addProgramTo(installation, slug, program, isDryRun);

    const shown = { ...added, networks: added.networks.join(', ') || 'everywhere' };
    const warning =
      added.scope === 'Self' && entityId === null
        ? [
            'The scope Self shows what belongs to the entity of the program, and there is none. ' +
              'An administrator of the tenant gives the program an entity, or the scope All.',
          ]
        : [];

    return {
      document: isDryRun ? added : { id, guid, ...added },
      plan: [`Would be added:\n${fieldsText(shown)}`, ...warning].join('\n\n'),
      done: [
        `${fieldsText({ id, guid, ...shown })}\n`,
        `Make a key of it: bin/backoffice program key add ${slug} ${id}`,
        ...warning,
      ].join('\n'),
    };
  },
});

const list = defineList({
  name: 'program list',
  help: {
    description: 'list the programs of a tenant, with the number of their valid keys',
    examples: ['program list acme', 'program list acme -o name'],
  },
  fields: { slug: argument('slug') },
  async items({ slug }, { installation }) {
    const { listPrograms } = await import('./read-programs.ts');
    return listPrograms(installation, slug);
  },
  row: ({ id, name, role, scope, state, keys, lastUsedAt, networks, entityId, guid }) => ({
    id,
    name,
    role,
    scope,
    state,
    keys,
    lastUsedAt,
    networks: networks.join(', ') || 'everywhere',
    entityId,
    guid,
  }),
  nameOf: ({ id }) => id,
  empty: 'No programs.',
});

const program = {
  slug: argument('slug'),
  program: argument('program', { parse: parseProgram }),
};

const disable = defineChange({
  name: 'program disable',
  help: {
    description: 'refuse all keys of a program; to refuse one of them: program key revoke',
    examples: ['program disable acme 12 --reason "till was stolen"'],
  },
  fields: program,
  effect: 'locks out',
  handling: { control: 'rows' },
  async change({ slug, program: id }, { installation }, isDryRun) {
    const { setProgramDisabled } = await import('./programs.ts');
    const found = await setProgramDisabled(installation, slug, id, true, isDryRun);
    const { guid, name, keys } = found;
    const webhooks = `Webhooks that send for this program stop: bin/backoffice webhooks ${slug}`;
    const ofWhom = `${countText(keys, 'valid key')} of program ${programText(found)}`;

    return {
      document: { id, guid, name, state: 'disabled' },
      facts: { keys },
      plan: `It would refuse the ${ofWhom}. ${webhooks}`,
      confirm: { name: slug, consequence: `will refuse the ${ofWhom}` },
      done:
        `Program ${programText(found)} is disabled: every process refuses its keys within a second, as a ` +
        `rule. ${webhooks}`,
    };
  },
});

const enable = defineChange({
  name: 'program enable',
  help: {
    description: 'accept the valid keys of a disabled program again',
    examples: ['program enable acme 12'],
  },
  fields: program,
  effect: 'changes',
  async change({ slug, program: id }, { installation }, isDryRun) {
    const { setProgramDisabled } = await import('./programs.ts');
    const found = await setProgramDisabled(installation, slug, id, false, isDryRun);
    const { guid, name, keys } = found;
    const ofWhom = `${countText(keys, 'valid key')} of program ${programText(found)}`;

    return {
      document: { id, guid, name, state: 'enabled' },
      facts: { keys },
      plan: `It would accept the ${ofWhom}.`,
      done: `Program ${programText(found)} is enabled: every process accepts its ${countText(keys, 'valid key')} within a second, as a rule.`,
    };
  },
});

export const operations = [add, list, disable, enable, ...keyOperations];
