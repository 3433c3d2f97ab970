import { defineChange } from '../command/define-change.ts';
import { defineList } from '../command/define-list.ts';
import { defineOperation } from '../command/operation.ts';
import {
  amount,
  argument,
  flag,
  option,
  optionalArgument,
  optionList,
  parseCount,
} from '../command/operation-fields.ts';
import { fieldsText, tableText } from '../command/text-table.ts';
import { countText } from '../command/texts.ts';
import { tenantSorts, tenantStates } from './read-tenants.ts';
import { type HealthReason, healthStates } from './tenant-health.ts';

const show = defineOperation({
  name: 'show',
  help: {
    description: 'show one tenant: what was decided about it, whether it is well, and why not',
    examples: ['show acme'],
  },
  fields: { slug: argument('slug') },
  effect: 'reads',
  async run({ slug }, { installation, output }) {
    const { showTenant } = await import('./read-tenants.ts');
    const { keys, features, otherDatabases, reasons, ...fields } = await showTenant(
      installation,
      slug,
    );
    output.result({ ...fields, reasons, features, otherDatabases, keys }, () =>
      [
        fieldsText({ ...fields, features: features.join(', ') || '–' }),
        ...reasons.map(reason => fieldsText({ [reason.severity]: reasonText(reason) })),
        ...(otherDatabases.length > 0
          ? [
              fieldsText({
                'other databases': `${countStates(otherDatabases)}: bin/backoffice databases ${slug}`,
              }),
            ]
          : []),
        ...keys.map(key =>
          fieldsText({ 'signing key': `${key.kid} ${key.status} since ${key.createdAt}` }),
        ),
      ].join('\n'),
    );
  },
});

/** `the database is missing, since 2026-11-24T22:50:39Z. Restore it: bin/backoffice …` */
function reasonText({ severity, text, since, remedy }: HealthReason): string {
  const isDone = severity === 'done' ? ' (done since, not checked again)' : '';
  return `${text}${since ? `, since ${since}` : ''}${isDone}. ${remedy}`;
}

/** Returns how many databases have each state, such as `1 kept, 2 filled`. */
function countStates(databases: readonly { readonly state: string }[]): string {
  const counts = Map.groupBy(databases, ({ state }) => state);
  return [...counts].map(([state, { length }]) => `${length} ${state}`).join(', ');
}

const edit = defineChange({
  name: 'edit',
  help: {
    description: 'change the slug, the name, the application or the features of a tenant',
    examples: [
      'edit acme --slug acme-world --name "Acme World Ltd" --reason "renamed"',
      'edit acme-world --alias-days 60 # its former slugs lead to it for longer',
      "edit acme --app-url 'https://acme.example.com/{action}#token={token}'",
      'edit acme --passkey-origin https://app.acme.example --reason "a second application"',
      'edit acme --password-logins allowed --reason "its provider of sign-in is gone"',
      'edit acme --enable legacyTokens --dry-run',
    ],
  },
  fields: {
    slug: argument('slug'),
    newSlug: option('<slug>', 'another slug; the former one leads to the tenant for a time', {
      kind: 'text',
      label: 'New slug',
      flag: '--slug',
    }),
    aliasDays: amount(
      'days',
      'days for which former slugs lead to the tenant, from now on; 0: none',
      {
        label: 'Former slugs lead to it for',
        parse: parseCount,
        otherwise: '30 for the one that a new slug replaces',
        isAdvanced: true,
      },
    ),
    name: option('<name>', 'name of the company', { kind: 'text' }),
    appId: option('<id>', 'application identifier', { kind: 'text', isAdvanced: true }),
    appUrl: option(
      '<address>',
      'pages that links in mails lead to, as APP_URL; none: those of APP_URL',
      {
        kind: 'url',
        label: 'Address of the application',
        isAdvanced: true,
      },
    ),
    passkeyOrigin: optionList(
      '<origin>',
      'a further page on which passkeys work, such as https://app.example.com; none: only the address of the application',
      {
        kind: 'url',
        label: 'Origins of pages with passkeys',
        otherwise: 'those that it has',
        isAdvanced: true,
      },
    ),
    passwordLogins: option(
      '<rule>',
      'allowed: people may log in by passwords again, which administrators of the tenant have refused',
      { choices: ['allowed'], label: 'Logins by password', isAdvanced: true },
    ),
    enable: optionList('<feature>', 'a feature to enable: legacyTokens or selfRegistration', {
      kind: 'feature',
      isAdvanced: true,
    }),
    disable: optionList('<feature>', 'a feature to disable', { kind: 'feature', isAdvanced: true }),
  },
  effect: 'changes',
  handling: { control: 'rows' },
  async change({ slug, newSlug, ...values }, { installation }, isDryRun) {
    const { editTenant } = await import('./edit-tenant.ts');
    const edit = { ...values, slug: newSlug };
    const { changes, ...tenant } = await editTenant(installation, slug, edit, isDryRun);
    const table = tableText(changes, `${slug} has these values already.`);
    const { passkeysLost } = tenant;
    const text =
      passkeysLost > 0
        ? `${table}\n${countText(passkeysLost, 'passkey')} of another host: not accepted on these pages.`
        : table;
    return { document: { ...tenant, state: 'changed', changes }, plan: text, done: text };
  },
});

const list = defineList({
  name: 'list',
  help: {
    description: 'list the tenants, or those that have all of the given properties',
    examples: [
      'list',
      'list north --status active --sort -created',
      'list --health unwell',
      'list -o name',
    ],
    more:
      'Health is what doctor found when it looked last, and what the control database knows by ' +
      'itself: a failed migration, a webhook that fails, a faulty archive.',
  },
  fields: {
    text: optionalArgument('text', { description: 'a part of the slug, the name or the guid' }),
    status: option('<status>', 'only tenants in this state', { choices: tenantStates }),
    health: option('<health>', 'only tenants that are so', { choices: healthStates }),
    server: option('<name>', 'only tenants on this server', { kind: 'server' }),
    version: option(
      '<version>',
      'only tenants at this schema version; its number is enough, such as 0021',
      {
        kind: 'version',
      },
    ),
    sort: option('<column>', 'order; with - in front, the other way round', {
      choices: tenantSorts.flatMap(name => [name, `-${name}`] as const),
      default: 'slug',
    }),
    wide: flag('all columns at full width', { label: 'All columns', isAdvanced: true }),
  },
  async items({ text: search, ...filter }, { installation }) {
    const { listTenants } = await import('./read-tenants.ts');
    return listTenants(installation, { search, ...filter });
  },
  row: ({ slug, name, status, health, schemaVersion, server, reasons }) => ({
    slug,
    name,
    status,
    health,
    schemaVersion,
    server,
    why: whyOf(reasons),
  }),
  wide: ({ guid, id, appId, database, createdAt }) => ({
    guid,
    id,
    appId,
    database,
    created: createdAt,
  }),
  isWide: ({ wide }) => wide,
  nameOf: ({ slug }) => slug,
  empty: ({ text, status, health, server, version }) =>
    [text, status, health, server, version].some(value => value !== undefined)
      ? 'No tenant has these properties.'
      : 'There is no tenant. Make one: bin/backoffice provision --help',
});

/**
 * The worst reason, and how many others there are; null for a tenant that is well, or only not
 * checked yet.
 */
function whyOf(reasons: readonly HealthReason[]): string | null {
  const [worst, ...others] = reasons.filter(({ severity }) => severity !== 'unchecked');
  if (!worst) return null;

  return `${worst.text}${others.length > 0 ? `, and ${others.length} more` : ''}`;
}

export const operations = [list, show, edit];
