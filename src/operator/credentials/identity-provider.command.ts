import { defineChange } from '../command/define-change.ts';
import { defineList } from '../command/define-list.ts';
import { argument, parseId } from '../command/operation-fields.ts';
import { countText } from '../command/texts.ts';

const list = defineList({
  name: 'identity-provider list',
  help: {
    description: 'list the providers of OpenID Connect at which people of a tenant sign in',
    examples: ['identity-provider list acme', 'identity-provider list acme -o name'],
  },
  fields: { slug: argument('slug') },
  async items({ slug }, { installation }) {
    const { listProviders } = await import('./identity-providers.ts');
    return listProviders(installation, slug);
  },
  row: ({ id, name, state, people, reachedAt, failure, issuer }) => ({
    id,
    name,
    state,
    people,
    reachedAt,
    failure,
    issuer,
  }),
  wide: ({ guid, clientIds, sessionHours, makesAccounts }) => ({
    guid,
    clientIds: clientIds.join(', '),
    sessionHours,
    makesAccounts,
  }),
  nameOf: ({ id }) => id,
  empty: 'No providers.',
});

const disable = defineChange({
  name: 'identity-provider disable',
  help: {
    description:
      'refuse sign-ins by a provider, and end the sessions that it has opened; an administrator ' +
      'of the tenant enables it again',
    examples: ['identity-provider disable acme 3 --reason "keys of the provider were stolen"'],
  },
  fields: { slug: argument('slug'), provider: argument('provider', { parse: parseId }) },
  effect: 'locks out',
  handling: { control: 'rows' },
  async change({ slug, provider: id }, { installation }, isDryRun) {
    const { disableProvider } = await import('./identity-providers.ts');
    const { guid, name, people, withoutPassword } = await disableProvider(
      installation,
      slug,
      id,
      isDryRun,
    );
    const ofWhom = `sign-ins by ${name} (${id}), which ${countText(people, 'account')} can use`;
    const locked =
      withoutPassword > 0
        ? ` ${countText(withoutPassword, 'account')} of them ${withoutPassword === 1 ? 'has' : 'have'} no password: ` +
          'these people ask for one by mail.'
        : '';

    return {
      document: { id, guid, name, state: 'disabled' },
      facts: { people, withoutPassword },
      plan: `It would refuse ${ofWhom}, and end the sessions that it has opened.${locked}`,
      confirm: { name: slug, consequence: `will refuse ${ofWhom}` },
      done: `Every process refuses ${ofWhom}, and the sessions that it has opened, within a second as a rule.${locked}`,
    };
  },
});

export const operations = [list, disable];
