import { holderName } from '../../sales/events/held-feeds.ts';
import { defineChange } from '../command/define-change.ts';
import { defineOperation } from '../command/operation.ts';
import { argument, optionalArgument, parseId } from '../command/operation-fields.ts';

const list = defineOperation({
  name: 'webhooks',
  help: {
    description:
      'list the tenants with webhooks, or the webhooks of one: failing, disabled, waiting',
    examples: ['webhooks', 'webhooks acme'],
    more: 'The numbers of all tenants are those of the last time at which their webhooks were served.',
  },
  fields: { slug: optionalArgument('slug') },
  effect: 'reads',
  handling: { result: 'list' },
  async run({ slug }, { installation, output }) {
    const { readHolder, readTenantWebhooks, readWebhooks } = await import('./webhooks.ts');

    if (slug === undefined) {
      return output.list(await readTenantWebhooks(installation), {
        row: ({ waiting, ...row }) => ({
          ...row,
          waiting: waiting === null ? null : `${Math.round(waiting)} s`,
        }),
        name: ({ tenant }) => tenant,
        empty: 'No tenant has webhooks.',
      });
    }

    const holder = (await readHolder(installation, slug)) ?? null;
    const webhooks = (await readWebhooks(installation, slug)).map(each => ({ ...each, holder }));

    if (holder) {
      output.warn(
        `The changes of ${slug} wait for ${holderName(holder)}, whose transaction is ${Math.round(holder.seconds)} s old: ` +
          'nothing that follows it is sent. Let its owner end it, or see bin/backoffice doctor',
      );
    }

    return output.list(webhooks, {
      row: ({ failingSince: _, nextAttemptAt: __, waitingSince: ___, holder: ____, ...row }) => row,
      wide: ({ failingSince, nextAttemptAt, waitingSince }) => ({
        'failing since': failingSince,
        'next attempt': nextAttemptAt,
        'waiting since': waitingSince,
      }),
      name: ({ id }) => id,
      empty: `${slug} has no webhooks.`,
    });
  },
});

const webhook = {
  slug: argument('slug'),
  id: argument('text', {
    label: 'Webhook',
    parse: parseId,
    description: 'its number: webhooks <slug>',
  }),
};

const disable = defineChange({
  name: 'webhooks disable',
  help: {
    description: 'send nothing more to a webhook until its tenant enables it again',
    examples: ['webhooks disable acme 3 --reason "the receiver is a stranger\'s"'],
  },
  fields: webhook,
  effect: 'locks out',
  async change({ slug, id }, { installation }, isDryRun) {
    const { disableWebhook } = await import('./webhooks.ts');
    const url = await disableWebhook(installation, slug, id, isDryRun);
    return {
      document: { tenant: slug, webhook: id, state: 'disabled' },
      facts: { url },
      plan: `Webhook ${id} to ${url} would receive nothing more.`,
      confirm: { name: slug, consequence: `sends nothing more to ${url}` },
      done: `Webhook ${id} of ${slug} is disabled.`,
    };
  },
});

export const operations = [list, disable];
