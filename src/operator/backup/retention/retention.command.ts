import { OperatorError } from '../../../lib/log/operator-error.ts';
import { chosenSlugs } from '../../command/chosen-slugs.ts';
import { type Context, defineOperation } from '../../command/operation.ts';
import {
  amount,
  argumentList,
  flag,
  option,
  optionalArgument,
  type Values,
} from '../../command/operation-fields.ts';
import { type FleetObservers, hasFailed, reportOutcomes } from '../../command/run-fleet.ts';
import { tableText } from '../../command/text-table.ts';
import { readTenant } from '../../registry/read-tenants.ts';
import type { RetentionOutcome, RetentionReport } from './apply-retention.ts';
import { parseAge } from './retention-age.ts';
import {
  removalRow,
  retentionOutcomeText,
  retentionReportText,
  retentionRow,
} from './retention-text.ts';

const applyFields = {
  slug: argumentList('slug', {
    label: 'Tenants',
    description: 'only from these tenants',
    unless: ['all'],
  }),
  all: flag('from every tenant', { unless: ['slug'] }),
  yes: flag('remove also more than half of the rows of the named tenants', {
    label: 'Also more than half of the rows',
    isAdvanced: true,
  }),
  withoutArchive: flag('remove rows that no proved archive has', {
    label: 'Also without a proved archive',
    isAdvanced: true,
  }),
  concurrency: amount('tenants', 'tenants at the same time', {
    label: 'At the same time',
    default: 2,
    isAdvanced: true,
  }),
};

/** Its effect is not *destroys*, because a proved archive has the rows that it removes. */
const applyRetentionOperation = defineOperation({
  name: 'retention apply',
  help: {
    description:
      'remove the activities and audit entries that are older than their tenants keep them',
    examples: ['retention apply --all --dry-run', 'retention apply --all'],
    more: `Removes by whole months, in UTC, so that there is something to do for a tenant once in a month. A tenant is taken if an
archive of its present database that a drill has restored was made an hour or more after the newest of the rows that go. Others
are left out and named; doctor speaks of them after 60 days. So let "backup run" and "backup drill" come before. The rows
stay in that archive until BACKUP_KEEP removes it.

Refused for a tenant: rows from the future or a wrong clock; more than half of the rows, unless you name the tenant and give
--yes. Run it again after an interruption of any kind: it goes on.`,
    exitCodes:
      '0 when no tenant failed, also if some were left out; 1 when one failed; 2 for wrong usage',
    dryRun: 'check everything and show what would be removed, and remove nothing',
    json: 'print JSON lines on stdout, the last one with the totals',
  },
  fields: applyFields,
  effect: 'changes',
  handling: { isRoutine: true, isTraced: true, interrupt: { text: 'the running batches of rows' } },
  async plan(values, context) {
    const outcomes: RetentionOutcome[] = [];
    const report = await apply(values, context, true, {
      onOutcome: outcome => outcomes.push(outcome),
    });
    const shown = outcomes
      .filter(isShown)
      .sort((a, b) => Number(hasFailed(a)) - Number(hasFailed(b)));

    return {
      document: [...outcomes, report],
      text: () =>
        [...shown.map(retentionOutcomeText), retentionReportText(report, true)].join('\n'),
      isLines: true,
      hasFailed: report.failed > 0,
      steady: JSON.stringify(shown.map(({ ms: _, ...outcome }) => outcome)),
    };
  },
  async run(values, context) {
    const report = await reportOutcomes(
      context,
      { hasFailed, isShown, text: retentionOutcomeText },
      observers => apply(values, context, false, observers),
    );
    context.output.part(report, () => retentionReportText(report, false));
    return report.failed === 0;
  },
});

function isShown({ state }: RetentionOutcome): boolean {
  return state !== 'nothing';
}

async function apply(
  { slug: slugs, all, yes, withoutArchive, concurrency }: Values<typeof applyFields>,
  { installation }: Context,
  dryRun: boolean,
  observers: FleetObservers<RetentionOutcome>,
): Promise<RetentionReport> {
  const chosen = chosenSlugs(slugs, all);
  if (all && yes) throw new OperatorError('Name the tenants that --yes is for', { usage: true });
  if (all && withoutArchive) {
    throw new OperatorError('Name the tenants that --without-archive is for', { usage: true });
  }

  const { applyRetention } = await import('./apply-retention.ts');
  const { openBackupTarget } = await import('../target/open-target.ts');
  const request = { slugs: chosen, concurrency, dryRun, confirmed: yes, withoutArchive };
  const target = withoutArchive ? undefined : await openBackupTarget(installation);

  return applyRetention(installation, target, request, observers);
}

const fields = {
  slug: optionalArgument('slug', {
    description: 'one tenant',
    otherwise: 'all tenants',
    unless: ['default'],
  }),
  default: flag('the default of all tenants', {
    label: 'Default of all tenants',
    unless: ['slug'],
  }),
  activity: option('<age>', 'how long activities are kept: 90d, 18m, 2y or forever', {
    label: 'Activities',
    kind: 'text',
    parse: parseAgeField,
    isChange: true,
  }),
  audit: option('<age>', 'how long audit entries are kept: 90d, 18m, 2y or forever', {
    label: 'Audit entries',
    kind: 'text',
    parse: parseAgeField,
    isChange: true,
  }),
  people: option(
    '<age>',
    'with --default: how long the audit entries of users and roles are kept',
    {
      label: 'Audit entries of users and roles',
      kind: 'text',
      parse: parseAgeField,
      isChange: true,
      unless: ['slug'],
    },
  ),
  logins: option('<age>', 'with --default: how long logins are kept', {
    label: 'Logins',
    kind: 'text',
    parse: parseAgeField,
    isChange: true,
    unless: ['slug'],
  }),
};

const retention = defineOperation({
  name: 'retention',
  help: {
    description: 'show or set how long a tenant keeps activities and audit entries',
    examples: [
      'retention # show all tenants',
      'retention acme --activity 2y --audit 7y # set one',
      'retention --default --activity 5y # set the default of all tenants',
      'retention --default --people 7y # keep the audit entries of users and roles for 7 years instead of 10',
      'retention --default --logins 90d # keep logins for 90 days instead of a year',
    ],
    more: `Without a retention, activities and audit entries are kept for ever. Ages are days, months or years (90d, 18m, 2y), at
least 30 days, or forever; "default" gives a tenant the default again. Setting one removes nothing: retention apply does.
The audit entries of users and roles are in the control database, which keeps them for 10 years, or as --people says. So are
logins, for a year, or as --logins says. Each new one removes some that are older; no archive has to have them.`,
  },
  fields,
  effect: 'reads',
  async plan(values, { installation }) {
    const { readDefault, readRetention } = await import('./policies.ts');
    requireOneScope(values);
    const { slug, default: isDefault, activity, audit, people, logins } = values;
    const [found] = isDefault
      ? [await readDefault(installation)]
      : await readRetention(installation, slug);
    const kept = {
      activity: activity ?? found?.activity ?? 'forever',
      audit: audit ?? found?.audit ?? 'forever',
    };
    const planned = {
      tenant: slug ?? '(default)',
      ...kept,
      ...(people !== undefined && { people }),
      ...(logins !== undefined && { logins }),
    };

    return {
      document: { ...planned, state: 'planned' },
      text: () => (isChange(values) ? tableText([planned], '') : 'Nothing would be changed.'),
    };
  },
  async run(values, { installation, output }) {
    const { readDefault, readRetention, setRetention } = await import('./policies.ts');
    requireOneScope(values);
    const { slug, default: isDefault, activity, audit, people, logins } = values;

    if (isChange(values)) {
      await setRetention(installation, slug ?? null, { activity, audit, people, logins });
    }

    const defaults = await readDefault(installation);
    const document = {
      activity: defaults.activity ?? 'forever',
      audit: defaults.audit ?? 'forever',
      people: defaults.people,
      logins: defaults.logins,
    };
    if (isDefault) {
      return output.result(document, () => tableText([{ tenant: '(default)', ...document }], ''));
    }

    const tenants = await readRetention(installation, slug);
    return output.result(slug === undefined ? { default: document, tenants } : tenants[0], () =>
      tableText(
        [retentionRow({ slug: '(default)', ...document }), ...tenants.map(retentionRow)],
        '',
      ),
    );
  },
});

const log = defineOperation({
  name: 'retention log',
  help: {
    description: 'list what was removed, the newest first, and the proved archives that have it',
    examples: ['retention log', 'retention log acme'],
  },
  fields: { slug: optionalArgument('slug', { description: 'only from one tenant' }) },
  effect: 'reads',
  async run({ slug }, { installation, output }) {
    const { listRemovals } = await import('./removals.ts');
    if (slug !== undefined) await readTenant(installation, slug);
    const removals = await listRemovals(installation, slug);
    output.result(removals, () => tableText(removals.map(removalRow), 'Nothing was removed.'));
  },
});

export const operations = [retention, applyRetentionOperation, log];

function isChange({ activity, audit, people, logins }: Values<typeof fields>): boolean {
  return [activity, audit, people, logins].some(age => age !== undefined);
}

/**
 * @throws {OperatorError} when the fields change something, but do not name one tenant or the
 *   default
 */
function requireOneScope(values: Values<typeof fields>): void {
  const { slug, default: isDefault, people, logins } = values;
  if (slug !== undefined && isDefault) {
    throw new OperatorError('Name a tenant, or give --default: not both', { usage: true });
  }
  for (const [name, age] of Object.entries({ people, logins })) {
    if (age !== undefined && !isDefault) {
      throw new OperatorError(`--${name} is for all tenants: give --default with it`, {
        usage: true,
      });
    }
  }
  if (isChange(values) && slug === undefined && !isDefault) {
    throw new OperatorError('Name a tenant, or give --default for all of them', { usage: true });
  }
}

function parseAgeField(text: string): string {
  const age = text === 'default' ? text : parseAge(text);
  if (age === undefined) {
    throw new OperatorError('Give 90d, 18m, 2y or such, at least 30 days, or forever.');
  }
  return age;
}
