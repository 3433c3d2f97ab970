import type { Installation } from '../../../control/installation.ts';
import { defineOperation } from '../../command/operation.ts';
import { amount, optionalArgument } from '../../command/operation-fields.ts';
import { hasFailed, reportOutcomes } from '../../command/run-fleet.ts';
import { countText } from '../../command/texts.ts';
import { readTenant } from '../../registry/read-tenants.ts';
import { openBackupTarget } from '../target/open-target.ts';
import type { DrillOutcome } from './drill-archives.ts';
import type { ArchiveCheck } from './verify-archives.ts';

const json = 'print JSON lines on stdout, the last one with the totals';
const defaultDrills = 5;
/** Maximum archives that a line names. */
const maxNamed = 3;

export const verifyOperation = defineOperation({
  name: 'backup verify',
  help: {
    description: 'compare the archives with what was recorded when they were written',
    examples: ['backup verify', 'backup verify acme'],
    more: `This host needs no identity, and opens nothing: each archive is there in its size, and the target returns the bytes that
were written, by their SHA-256. That they can be restored, only backup drill proves.`,
    json,
  },
  fields: {
    slug: optionalArgument('slug', { description: 'only those of one tenant' }),
  },
  effect: 'reads',
  async run({ slug }, context) {
    const { installation, output } = context;
    const { compareArchives } = await import('./verify-archives.ts');
    const target = await openBackupTarget(installation);
    const guid = await guidOf(installation, slug);
    const isFaulty = ({ fault }: ArchiveCheck): boolean => fault !== null;
    const appearance = { hasFailed: isFaulty, isShown: isFaulty, text: checkText };

    const checks = await reportOutcomes(context, appearance, observers =>
      compareArchives(installation, target, guid, observers),
    );
    const faulty = checks.filter(isFaulty).length;
    const bytes = checks.reduce((sum, check) => sum + check.bytes, 0);
    output.part(
      { archives: checks.length, faulty, bytes },
      () =>
        `${countText(checks.length, 'archive')} compared by size and SHA-256, not opened, ${faulty} faulty.`,
    );

    return faulty === 0;
  },
});

export const drillOperation = defineOperation({
  name: 'backup drill',
  help: {
    description:
      'restore archives into scratch databases, and compare every table: proves that they can ' +
      'be restored',
    examples: ['backup drill --count 3 # on the recovery host'],
    json,
  },
  fields: {
    count: amount('tenants', 'those whose last drill is longest ago first', {
      label: 'How many',
      default: defaultDrills,
    }),
  },
  effect: 'reads',
  handling: {
    isRoutine: true,
    isTraced: true,
    opensArchives: () => true,
    interrupt: { text: 'the running restore, whose database is dropped' },
  },
  async run({ count }, context) {
    const { installation, output } = context;
    const { drillArchives } = await import('./drill-archives.ts');
    const target = await openBackupTarget(installation);

    const outcomes = await reportOutcomes(context, { hasFailed, text: drillText }, observers =>
      drillArchives(installation, target, count, observers),
    );
    const failed = outcomes.filter(hasFailed).length;
    const partly = outcomes.filter(
      outcome => !hasFailed(outcome) && outcome.notRestored.length > 0,
    ).length;
    const rest = partly > 0 ? ` (${partly} of them without what no restore brings back)` : '';
    output.text(() => `${outcomes.length - failed} proved${rest}, ${failed} failed.`);

    return failed === 0;
  },
});

async function guidOf(
  installation: Installation,
  slug: string | undefined,
): Promise<string | undefined> {
  return slug === undefined ? undefined : (await readTenant(installation, slug)).guid;
}

/** Formats a faulty archive as one line. */
function checkText({ archive, fault, message }: ArchiveCheck): string {
  return `${archive}: ${fault === null ? 'right' : `${fault}: ${message}`}`;
}

/** Formats the result of a drill for one archive as one line. */
function drillText(outcome: DrillOutcome): string {
  const { slug, archive, state, rows, ms, error, notRestored, refused } = outcome;
  const named = refused.slice(0, maxNamed).map(({ name, error }) => `${name} (${error})`);
  const others = refused.length > maxNamed ? ` and ${refused.length - maxNamed} more` : '';
  const later = refused.length > 0 ? `; later, and of no use: ${named.join(', ')}${others}` : '';
  if (state === 'failed') return `${slug}: ${archive}: failed: ${error}${later}`;

  const rest = notRestored.length > 0 ? `; not restored: ${notRestored.join(', ')}` : '';
  return `${slug}: proved, ${countText(rows, 'row')} restored and compared (${ms} ms)${rest}${later}`;
}
