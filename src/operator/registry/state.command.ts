import { changeChannel, changeTopics } from '../../control/change-topics.ts';
import { defineChange } from '../command/define-change.ts';
import type { Operation } from '../command/operation.ts';
import { argument, flag } from '../command/operation-fields.ts';
import { readTenant } from './read-tenants.ts';
import type { Transition } from './transitions.ts';

/**
 * Defines an operation that changes the state of a tenant. `undelete` does more: see
 * `undelete.command.ts`.
 */
function defineTransition(
  name: Exclude<Transition, 'undelete'>,
  more: Pick<Operation, 'help' | 'effect'> & { consequence: string },
): Operation {
  const { consequence, ...rest } = more;
  return defineChange({
    ...rest,
    name,
    fields: { slug: argument('slug') },
    handling: { control: 'rows' },
    async change({ slug }, { installation }, isDryRun) {
      const { changeState } = await import('./transitions.ts');
      const { guid, from, to } = await changeState(installation, slug, name, isDryRun);
      return {
        document: { slug, guid, status: to },
        facts: { from, to },
        plan: from === to ? `${slug} is ${to} already.` : `${slug} ${consequence}.`,
        confirm: from === to ? undefined : { name: slug, consequence },
        done: `${slug} is ${to}.`,
      };
    },
  });
}

const isolate = defineChange({
  name: 'isolate',
  help: {
    description:
      'send no mail of a tenant, and refuse the keys of its programs and its legacy clients, as ' +
      'with every clone',
    examples: ['isolate acme-test', 'isolate acme-test --off'],
  },
  fields: {
    slug: argument('slug'),
    off: flag('send mail again, and accept keys of programs and legacy clients', {
      label: 'End the isolation',
    }),
  },
  effect: 'locks out',
  handling: { control: 'rows' },
  async change({ slug, off }, { installation }, isDryRun) {
    const { isolate } = await import('./transitions.ts');
    const { guid, isolated } = await isolate(installation, slug, !off, isDryRun);
    const programs = 'the keys of its programs and its legacy clients';
    const consequence = `will send no mail, and ${programs} will be refused`;
    const isRepeated = isolated === !off;
    const repeated = isolated ? 'is isolated already' : 'is not isolated';
    const planned = off ? `will send mail again, and ${programs} will be accepted` : consequence;
    const done = off
      ? 'is not isolated'
      : `is isolated: it sends no mail, and ${programs} are refused`;

    return {
      document: { slug, guid, isolated: !off },
      plan: `${slug} ${isRepeated ? repeated : planned}.`,
      confirm: off || isRepeated ? undefined : { name: slug, consequence },
      done: `${slug} ${done}.`,
    };
  },
});

const refresh = defineChange({
  name: 'refresh',
  help: {
    description:
      'make every process read the data of a tenant again, after a change outside the service ' +
      '(psql …)',
    examples: ['refresh acme'],
  },
  fields: { slug: argument('slug') },
  effect: 'changes',
  handling: { control: 'rows' },
  async change({ slug }, { installation }, isDryRun) {
    const { guid } = await readTenant(installation, slug);
    const topic = `${changeTopics.responses}:${guid}`;
    if (!isDryRun) {
      await installation.statements.query(`select pg_notify('${changeChannel}', $1)`, [topic]);
    }
    return {
      document: { slug, guid },
      plan: `Every process would read the data of ${slug} again. No data would be changed.`,
      done: `Every process reads the data of ${slug} again.`,
    };
  },
});

export const operations = [
  defineTransition('suspend', {
    help: {
      description: 'stop serving a tenant, in every process within a second, as a rule',
      examples: ['suspend acme --reason "unpaid bill"'],
    },
    effect: 'locks out',
    consequence: 'will not be served until it is resumed',
  }),
  defineTransition('resume', {
    help: {
      description: 'serve a suspended tenant again',
      examples: ['resume acme --reason "bill is paid"'],
    },
    effect: 'changes',
    consequence: 'will be served again',
  }),
  defineTransition('delete', {
    help: {
      description: 'take a tenant out of service and keep its data until it is purged',
      examples: ['delete acme --reason "contract ended"'],
    },
    effect: 'destroys',
    consequence: 'will not be served any more',
  }),
  isolate,
  refresh,
];
