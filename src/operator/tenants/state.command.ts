import { changeChannel, changeTopics } from '../../control/change-topics.ts';
import { defineOperation, type Operation } from '../command/operation.ts';
import { argument, flag } from '../command/operation-fields.ts';
import { readTenant } from './read-tenants.ts';
import type { Transition } from './transitions.ts';

/** `restore` does more than this: see `restore.command.ts`. */
function defineTransition(
  name: Exclude<Transition, 'restore'>,
  more: Pick<Operation, 'description' | 'examples' | 'effect'> & { consequence: string },
): Operation {
  const { consequence, ...rest } = more;
  return defineOperation({
    ...rest,
    name,
    fields: { slug: argument('slug') },
    access: 'statements',
    async plan({ slug }, { installation }) {
      const { planTransition } = await import('./transitions.ts');
      const plan = await planTransition(installation, slug, name);
      return {
        document: { ...plan, state: 'planned' },
        text: () => (plan.from === plan.to ? `${slug} is ${plan.to} already.` : `${slug} ${consequence}.`),
        confirm: plan.from === plan.to ? undefined : { name: slug, consequence },
      };
    },
    async run({ slug }, { installation, output }) {
      const { changeState } = await import('./transitions.ts');
      const { guid, status } = await changeState(installation, slug, name);
      output.result({ slug, guid, status }, () => `${slug} is ${status}.`);
    },
  });
}

const isolate = defineOperation({
  name: 'isolate',
  description: 'send no mail of a tenant, and refuse its legacy clients, as with every clone',
  fields: { slug: argument('slug'), off: flag('send mail again, and accept its legacy clients') },
  examples: ['isolate acme-test', 'isolate acme-test --off'],
  access: 'statements',
  effect: 'locks out',
  async plan({ slug, off }, { installation }) {
    const { guid, isolated } = await readTenant(installation, slug);
    const consequence = 'will send no mail, and its legacy clients will be refused';
    const isRepeated = isolated === !off;
    return {
      document: { slug, guid, isolated: !off, state: 'planned' },
      text: () => {
        if (isRepeated) return `${slug} ${isolated ? 'is isolated already' : 'is not isolated'}.`;
        return `${slug} ${off ? 'will send mail again, and its legacy clients will be accepted' : consequence}.`;
      },
      confirm: off || isRepeated ? undefined : { name: slug, consequence },
    };
  },
  async run({ slug, off }, { installation, output }) {
    const { isolate } = await import('./transitions.ts');
    const { guid, isolated } = await isolate(installation, slug, !off);
    const state = isolated ? 'is isolated: it sends no mail, and its legacy clients are refused' : 'is not isolated';
    output.result({ slug, guid, isolated }, () => `${slug} ${state}.`);
  },
});

const refresh = defineOperation({
  name: 'refresh',
  description: 'make every process read the data of a tenant again, after a change outside the service (psql …)',
  fields: { slug: argument('slug') },
  examples: ['refresh acme'],
  access: 'statements',
  effect: 'changes',
  async plan({ slug }, { installation }) {
    const { guid } = await readTenant(installation, slug);
    return {
      document: { slug, guid, state: 'planned' },
      text: () => `Every process would read the data of ${slug} again. No data would be changed.`,
    };
  },
  async run({ slug }, { installation, output }) {
    const { guid } = await readTenant(installation, slug);
    await installation.statements.execute(`select pg_notify('${changeChannel}', ?)`, [
      `${changeTopics.responses}:${guid}`,
    ]);
    output.result({ slug, guid }, () => `Every process reads the data of ${slug} again.`);
  },
});

export const operations = [
  defineTransition('suspend', {
    description: 'stop serving a tenant, in every process within a second',
    examples: ['suspend acme --reason "unpaid bill"'],
    effect: 'locks out',
    consequence: 'will not be served until it is resumed',
  }),
  defineTransition('resume', {
    description: 'serve a suspended tenant again',
    examples: ['resume acme --reason "bill is paid"'],
    effect: 'changes',
    consequence: 'will be served again',
  }),
  defineTransition('delete', {
    description: 'take a tenant out of service and keep its data until it is purged',
    examples: ['delete acme --reason "contract ended"'],
    effect: 'destroys',
    consequence: 'will not be served any more',
  }),
  isolate,
  refresh,
];
