import { OperatorError } from '../../../log/operator-error.ts';
import { defineOperation } from '../../command/operation.ts';
import { flag, option, optionalArgument, type Values } from '../../command/operation-fields.ts';
import { tableText } from '../../command/text-table.ts';
import { parseAge } from './retention-age.ts';
import { applyRetentionOperation } from './retention-apply.command.ts';
import { removalRow, retentionRow } from './retention-text.ts';

const fields = {
  slug: optionalArgument('slug', { description: 'without it: all tenants' }),
  default: flag('the default of all tenants'),
  activity: option('<age>', 'how long activities are kept: 90d, 18m, 2y or forever', { parse: parseAgeField }),
  audit: option('<age>', 'how long audit entries are kept', { parse: parseAgeField }),
  people: option('<age>', 'with --default: how long the audit entries of users and roles are kept', {
    parse: parseAgeField,
  }),
};

const retention = defineOperation({
  name: 'retention',
  description: 'show or set how long a tenant keeps activities and audit entries',
  fields,
  examples: [
    'retention # show all tenants',
    'retention acme --activity 2y --audit 7y # set one',
    'retention --default --activity 5y # set the default of all tenants',
    'retention --default --people 7y # keep the audit entries of users and roles for 7 years instead of 10',
  ],
  help: `Without a retention, activities and audit entries are kept for ever. Ages are days, months or years (90d, 18m, 2y), at
least 30 days, or forever; "default" gives a tenant the default again. Setting one removes nothing: retention apply does.
The audit entries of users and roles are in the control database, which keeps them for 10 years, or as --people says. Each new
one removes some that are older; no archive has to have them.`,
  access: 'statements',
  effect: 'reads',
  changingFields: ['activity', 'audit', 'people'],
  async plan(values, { installation }) {
    const { readDefault, readRetention } = await import('./policies.ts');
    requireOneScope(values);
    const { slug, default: isDefault, activity, audit, people } = values;
    const [found] = isDefault ? [await readDefault(installation)] : await readRetention(installation, slug);
    const kept = { activity: activity ?? found?.activity ?? 'forever', audit: audit ?? found?.audit ?? 'forever' };
    const planned = { tenant: slug ?? '(default)', ...kept, ...(people !== undefined && { people }) };
    return {
      document: { ...planned, state: 'planned' },
      text: () => (isChange(values) ? tableText([planned], '') : 'Nothing would be changed.'),
    };
  },
  async run(values, { installation, output }) {
    const { readDefault, readRetention, setRetention } = await import('./policies.ts');
    requireOneScope(values);
    const { slug, default: isDefault, activity, audit, people } = values;
    if (isChange(values)) await setRetention(installation, slug ?? null, { activity, audit, people });
    const defaults = await readDefault(installation);
    const document = {
      activity: defaults.activity ?? 'forever',
      audit: defaults.audit ?? 'forever',
      people: defaults.people,
    };
    if (isDefault) return output.result(document, () => tableText([{ tenant: '(default)', ...document }], ''));
    const tenants = await readRetention(installation, slug);
    return output.result(slug === undefined ? { default: document, tenants } : tenants[0], () =>
      tableText([retentionRow({ slug: '(default)', ...document }), ...tenants.map(retentionRow)], ''),
    );
  },
});

const log = defineOperation({
  name: 'retention log',
  description: 'list what was removed, the newest first, and the archives that have it',
  fields: { slug: optionalArgument('slug', { description: 'only from one tenant' }) },
  examples: ['retention log', 'retention log acme'],
  access: 'statements',
  effect: 'reads',
  async run({ slug }, { installation, output }) {
    const { listRemovals } = await import('./list-removals.ts');
    const removals = await listRemovals(installation, slug);
    output.result(removals, () => tableText(removals.map(removalRow), 'Nothing was removed.'));
  },
});

export const operations = [retention, applyRetentionOperation, log];

function isChange({ activity, audit, people }: Values<typeof fields>): boolean {
  return activity !== undefined || audit !== undefined || people !== undefined;
}

/** @throws {OperatorError} unless the fields name one tenant or the default, where they change something */
function requireOneScope(values: Values<typeof fields>): void {
  const { slug, default: isDefault, people } = values;
  if (slug !== undefined && isDefault)
    throw new OperatorError('Name a tenant, or give --default: not both', { usage: true });
  if (people !== undefined && !isDefault)
    throw new OperatorError('--people is for all tenants: give --default with it', { usage: true });
  if (isChange(values) && slug === undefined && !isDefault)
    throw new OperatorError('Name a tenant, or give --default for all of them', { usage: true });
}

function parseAgeField(text: string): string {
  const age = text === 'default' ? text : parseAge(text);
  if (age === undefined) throw new OperatorError('Give 90d, 18m, 2y or such, at least 30 days, or forever.');
  return age;
}
