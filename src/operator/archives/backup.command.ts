import type { Installation } from '../../installation.ts';
import { chosenSlugs } from '../command/chosen-slugs.ts';
import { defineOperation } from '../command/operation.ts';
import { argumentList, flag, option, optionalArgument, parsePositive } from '../command/operation-fields.ts';
import { hasFailed, reportOutcomes } from '../command/run-fleet.ts';
import { countText } from '../command/texts.ts';
import { readTenant } from '../tenants/read-tenants.ts';
import type { BackupOutcome } from './backup-effects.ts';
import { initOperation } from './backup-init.command.ts';
import { archiveRow, checkText, drillText, outcomeText, planText, reportText } from './backup-text.ts';
import type { ArchiveCheck } from './check-archives.ts';
import { openBackupTarget } from './open-backup-target.ts';
import type { BackupTarget } from './targets/backup-target.ts';

const pruneOperation = defineOperation({
  name: 'backup prune',
  description: 'remove the archives that BACKUP_KEEP does not keep, as each run does, and those of purged tenants',
  examples: ['backup prune'],
  effect: 'changes',
  isRoutine: true,
  async plan(_, { installation }) {
    const { planPrune } = await import('./prune.ts');
    const { readConfig } = await import('../../config/config.ts');
    const { withConnection } = await import('../../postgres/connection.ts');
    const target = await openBackupTarget();
    const { keep } = readConfig().backup;
    const archives = await withConnection(installation.controlUrl, client => planPrune(client, target, keep));
    const removed = archives.map(({ file }) => file);
    return {
      document: { state: 'planned', removed },
      text: () => removed.join('\n') || 'Nothing would be removed.',
    };
  },
  async run(_, { installation, output }) {
    const { pruneArchives } = await import('./prune.ts');
    const { withBackupLock } = await import('./backup-lock.ts');
    const { requireOwner } = await import('./target-owner.ts');
    const { readConfig } = await import('../../config/config.ts');
    const target = await openBackupTarget();
    const removed = await withBackupLock(installation.controlUrl, 'archives', async control => {
      await requireOwner(control, target);
      return pruneArchives(control, target, readConfig().backup.keep);
    });
    output.result({ removed }, () => `${countText(removed, 'archive')} removed.`);
  },
});

const defaultDrills = 5;
const json = 'print JSON lines on stdout, the last one with the totals';
const slug = optionalArgument('slug', { description: 'only those of one tenant' });

const runFields = {
  slug: argumentList('slug', { description: 'only these tenants' }),
  all: flag('every tenant'),
  concurrency: option('<n>', 'tenants archived at the same time', { parse: parsePositive, default: 4 }),
};

const run = defineOperation({
  name: 'backup run',
  description: 'archive the tenants that have changed, and the control database',
  fields: runFields,
  examples: ['backup run --all', 'backup run acme globex'],
  help: `Archives each tenant that has changed since its last archive, in a snapshot of its own, while it is served; then the
control database. The counters of PostgreSQL prove which tenants have not changed. Each archive is compressed, and
encrypted with the key of its tenant. Afterwards removes the archives that BACKUP_KEEP does not keep.

Run it again after an interruption of any kind. Only one run is in progress at a time.

Exit code: 0 when every database is archived, 1 when one failed, 2 for wrong usage.`,
  effect: 'changes',
  isRoutine: true,
  isTraced: true,
  json,
  interrupt: { text: 'the running archives' },
  async plan(values, { installation }) {
    const slugs = chosenSlugs(values.slug, values.all);
    const target = await openBackupTarget();
    const { planBackup } = await import('./run-backup.ts');
    const planned = await planBackup(installation, target, { slugs });
    return {
      document: { state: 'planned', target: target.description, tenants: planned },
      text: () => planText(planned),
    };
  },
  async run(values, context) {
    const { installation, output } = context;
    const slugs = chosenSlugs(values.slug, values.all);
    const target = await openBackupTarget();
    const { runBackup } = await import('./run-backup.ts');
    const { readConfig } = await import('../../config/config.ts');
    const request = { slugs, concurrency: values.concurrency, keep: readConfig().backup.keep };
    const isShown = ({ state }: BackupOutcome): boolean => state !== 'unchanged';
    const report = await reportOutcomes(context, { hasFailed, isShown, text: outcomeText }, observers =>
      runBackup(installation, target, request, observers),
    );
    output.part({ ...report, target: target.description }, () => reportText(report, target.description));
    return report.failed === 0 && report.missing.length === 0;
  },
});

const list = defineOperation({
  name: 'backup list',
  description: 'list the archives, the newest first',
  fields: { slug },
  examples: ['backup list', 'backup list acme -o wide'],
  effect: 'reads',
  isList: true,
  async run({ slug }, { installation, output }) {
    const target = await openBackupTarget();
    const { listArchives } = await import('./list-archives.ts');
    const guid = await guidOf(installation, slug);
    const archives = await listArchives(installation, { target: target.description, guid });
    if (archives.length === 0) await requireOwnTarget(installation, target);
    output.list(archives, {
      row: archiveRow,
      wide: ({ id, fault }) => ({ id, fault }),
      name: ({ id }) => id,
      empty: `${target.description} has no archive. Make one: bin/backoffice backup run --all`,
    });
  },
});

const verify = defineOperation({
  name: 'backup verify',
  description: 'check every byte of the archives, and name each one that is missing or was changed',
  fields: { slug },
  examples: ['backup verify', 'backup verify acme'],
  effect: 'reads',
  json,
  async run({ slug }, context) {
    const { installation, output } = context;
    const target = await openBackupTarget();
    const { verifyArchives } = await import('./check-archives.ts');
    const guid = await guidOf(installation, slug);
    const isFaulty = ({ fault }: ArchiveCheck): boolean => fault !== null;
    const appearance = { hasFailed: isFaulty, isShown: isFaulty, text: checkText };
    const checks = await reportOutcomes(context, appearance, observers =>
      verifyArchives(installation, target, guid, observers),
    );
    const faulty = checks.filter(isFaulty).length;
    const bytes = checks.reduce((sum, check) => sum + check.bytes, 0);
    const total = { archives: checks.length, faulty, bytes };
    output.part(total, () => `${countText(checks.length, 'archive')} checked, ${faulty} faulty.`);
    return faulty === 0;
  },
});

const drill = defineOperation({
  name: 'backup drill',
  description: 'restore archives into scratch databases, and compare every table: proves that they can be restored',
  fields: {
    count: option('<n>', 'tenants, those that were proved longest ago first', {
      parse: parsePositive,
      default: defaultDrills,
    }),
  },
  examples: ['backup drill --count 3'],
  effect: 'reads',
  isRoutine: true,
  isTraced: true,
  json,
  async run({ count }, context) {
    const { installation, output } = context;
    const target = await openBackupTarget();
    const { drillArchives } = await import('./check-archives.ts');
    const outcomes = await reportOutcomes(context, { hasFailed, text: drillText }, observers =>
      drillArchives(installation, target, count, observers),
    );
    const failed = outcomes.filter(hasFailed).length;
    const partly = outcomes.filter(outcome => !hasFailed(outcome) && outcome.notArchived.length > 0).length;
    const rest = partly > 0 ? ` (${partly} of them without what is not in its archives)` : '';
    output.text(() => `${outcomes.length - failed} proved${rest}, ${failed} failed.`);
    return failed === 0;
  },
});

export const operations = [initOperation, run, list, verify, drill, pruneOperation];

/** @throws {OperatorError} when the target is none of this installation: then it has no archive in the ledger */
async function requireOwnTarget({ controlUrl }: Installation, target: BackupTarget): Promise<void> {
  const { withConnection } = await import('../../postgres/connection.ts');
  const { requireOwner } = await import('./target-owner.ts');
  await withConnection(controlUrl, control => requireOwner(control, target));
}

async function guidOf(installation: Installation, slug: string | undefined): Promise<string | undefined> {
  return slug === undefined ? undefined : (await readTenant(installation, slug)).guid;
}
