import type pg from 'pg';
import { usesAge } from '../../config/backup-format.ts';
import { databaseNameOf } from '../../control/server-urls.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../log/operator-error.ts';
import type { ControlArchiveAccess } from '../archives/control-archive.ts';
import { openBackupTarget } from '../archives/open-backup-target.ts';
import { defineOperation } from '../command/operation.ts';
import { flag, option, optionalSecret, parsePositive, type Values } from '../command/operation-fields.ts';
import { hasFailed } from '../command/run-fleet.ts';
import { fieldsText } from '../command/text-table.ts';
import { countText } from '../command/texts.ts';
import { fromField } from '../recovery/restore-data.ts';
import type { ControlSource } from './control-source.ts';
import type { PurgedTenants } from './remove-purged.ts';

const fields = {
  archive: option('<file>', 'file of the archive, or a part of its name (default: the newest)'),
  from: fromField,
  all: flag('also every tenant whose database is missing'),
  concurrency: option('<n>', 'tenants restored at the same time', { parse: parsePositive, default: 4 }),
};

export const restoreControlOperation = defineOperation({
  name: 'control restore',
  description: 'restore the control database from an archive into an empty one, and with --all the lost tenants',
  fields,
  examples: [
    'control restore # the control database is lost, the tenants are not',
    'control restore --all # everything is lost: a new machine, the archives and the master key',
    'control restore --from < url-file # its state on a recovered copy of its server',
  ],
  help: `Restores the newest archive of the control database in BACKUP_TARGET, or with --from its state on a recovered server, into
an empty control database, with the MASTER_KEY that the installation had, and makes it safe as after-restore does. With --all, then
restores every tenant whose database is missing. Run it again after an interruption: it continues. Start the service
afterwards, with the same MASTER_KEY.`,
  makesControl: true,
  effect: 'changes',
  json: 'print JSON lines on stdout, the last one with the totals',
  async plan({ all, ...chosen }, { installation }) {
    const { openControlArchives } = await import('../archives/control-archive.ts');
    const { requireRestorable } = await import('./restoring-database.ts');
    const access = await openControlArchives(await openBackupTarget(), installation.secrets);
    const source = await chooseSource(installation, access, chosen);
    await requireRestorable(installation.controlUrl, source);
    const tenants = all ? ', and then every tenant whose database is missing' : '';
    return {
      document: { file: source.description, at: source.at.toISOString(), all, state: 'planned' },
      text: () => `The control database would be restored from ${source.description}${tenants}.`,
    };
  },
  async run({ all, concurrency, ...chosen }, context) {
    const { installation, output, progress } = context;
    const { openControlArchives } = await import('../archives/control-archive.ts');
    const { restoreControl } = await import('./restore-control.ts');
    const { endRestore } = await import('./restoring-database.ts');
    const startedAt = performance.now();
    const onStep = (step: string): void => progress.step(step);
    const target = await openBackupTarget();
    const access = await openControlArchives(target, installation.secrets);
    const source = await chooseSource(installation, access, chosen);
    const { file, report } = await restoreControl(installation, access, source, onStep);
    const { differencesText } = await import('./narrow-people.ts');
    output.part({ file, ...report }, () =>
      `${restoredText(file, report?.purged)}\n${differencesText(report?.replayed?.differences ?? [])}`.trimEnd(),
    );
    const { restoreLostTenants } = await import('../recovery/restore-lost-tenants.ts');
    const tenants = all ? await restoreLostTenants(context, { concurrency }) : [];
    const failed = tenants.filter(hasFailed).length;
    const seconds = Math.round((performance.now() - startedAt) / 10) / 100;
    const totals = { tenants: tenants.length, failed, seconds };
    if (failed === 0) await endRestore(installation);
    output.part(totals, () => totalText(totals, report?.newestChange));
    return failed === 0;
  },
});

async function chooseSource(
  { controlUrl }: Installation,
  access: ControlArchiveAccess,
  { archive, from }: Pick<Values<typeof fields>, 'archive' | 'from'>,
): Promise<ControlSource> {
  if (from === undefined) {
    const { archivedControl } = await import('./control-source.ts');
    return archivedControl(access, archive);
  }
  if (archive !== undefined) throw new OperatorError('Give either --from or --archive', { usage: true });
  const { recoveredControl } = await import('./recovered-control.ts');
  const { parseServerUrl } = await import('../tenants/parse-server-url.ts');
  return recoveredControl(parseServerUrl(from), databaseNameOf(controlUrl), access.target);
}

function restoredText(file: string, { removed, withheld }: PurgedTenants = { removed: [], withheld: [] }): string {
  const lines = [`Restored the control database from ${file}.`];
  if (removed.length > 0) lines.push(`Purged since, and removed again: ${removed.join(', ')}.`);
  if (withheld.length > 0)
    lines.push(
      `Purged since, but the database is still there, or its server cannot be reached: ${withheld.join(', ')}. ` +
        'They are deleted. Purge them: bin/backoffice purge <slug>',
    );
  return lines.join('\n');
}

function totalText(
  { tenants, failed, seconds }: { tenants: number; failed: number; seconds: number },
  newestChange: string | null | undefined,
): string {
  return [
    `${countText(tenants - failed, 'tenant')} restored, ${failed} failed, in ${seconds} s.`,
    ...(newestChange ? [`What was revoked after ${newestChange} is not known: disable and revoke it again.`] : []),
    failed > 0
      ? 'Run the command again for the tenants that failed.'
      : 'Everybody logs in again. Start the service with the same MASTER_KEY. Check: bin/backoffice doctor',
  ].join('\n');
}

export const afterRestoreOperation = defineOperation({
  name: 'control after-restore',
  description: 'make a restored control database safe, before the service starts: end sessions, replace keys',
  fields: {
    laterUrl: optionalSecret(
      'URL of the control database that was replaced',
      '--replay',
      'read the URL of the control database that was replaced from stdin; revoke again what is revoked there',
    ),
  },
  examples: [
    'control after-restore # control restore does it by itself; run it after pg_restore',
    'control after-restore --replay --yes < url-file # the URL of the replaced control database',
  ],
  effect: 'destroys',
  async plan(_, { installation }) {
    const rows = await installation.statements.execute<{ sessions: number; keys: number; tokens: number }[]>(
      `select (select count(*)::int from sessions where revoked_at is null) as sessions,
              (select count(*)::int from signing_keys where status <> 'disabled') as keys,
              (select count(*)::int from legacy_tokens where revoked_at is null) as tokens`,
    );
    const { sessions, keys, tokens } = rows[0] ?? { sessions: 0, keys: 0, tokens: 0 };
    return {
      document: { sessions, keys, tokens, state: 'planned' },
      text: () =>
        `${countText(sessions, 'session')} would end, ${countText(keys, 'signing key')} be replaced, and ` +
        `${countText(tokens, 'legacy token')} be revoked.`,
      confirm: {
        name: databaseNameOf(installation.controlUrl),
        kind: 'name',
        consequence: 'will end all sessions, and replace all signing keys',
      },
    };
  },
  async run({ laterUrl }, { installation, output }) {
    const { withConnection } = await import('../../postgres/connection.ts');
    const { afterRestore } = await import('./after-restore.ts');
    const { parseServerUrl } = await import('../tenants/parse-server-url.ts');
    const replayer = await (usesAge() ? presentReplayer() : formerReplayer());
    const replay =
      laterUrl === undefined
        ? undefined
        : await withConnection(parseServerUrl(laterUrl), client => replayer.read(client));
    const report = await afterRestore(installation, replay);
    const { replayed, ...counts } = report;
    const lines = replayed ? replayed.lines : [unknownText(report.newestChange)];
    const document = { ...report, replayed: replayed?.document ?? null };
    output.result(document, () =>
      [
        fieldsText({ ...counts, ...replayed?.counts }),
        '',
        ...lines.filter(line => line !== ''),
        'Everybody logs in again. Next: bin/backoffice migrate --all, then bin/backoffice doctor',
      ].join('\n'),
    );
  },
});

/** What was taken over of a later control database, as a document and in words. */
interface ReplayReport {
  readonly document: object;
  readonly counts: object;
  readonly lines: readonly string[];
}

/** Reads a later control database, and returns what takes over its changes. */
interface Replayer {
  read(later: pg.Client): Promise<(restored: pg.Client) => Promise<ReplayReport>>;
}

async function presentReplayer(): Promise<Replayer> {
  const { readLaterState, replay, replayedLines } = await import('./replay.ts');

  return {
    read: async later => {
      const state = await readLaterState(later);
      return async restored => {
        const document = await replay(restored, state);
        return { document, counts: {}, lines: replayedLines(document) };
      };
    },
  };
}

async function formerReplayer(): Promise<Replayer> {
  const { readLaterChanges, replayLaterChanges } = await import('./later-changes.ts');
  const { differencesText } = await import('./narrow-people.ts');

  return {
    read: async later => {
      const changes = await readLaterChanges(later);
      return async restored => {
        const document = await replayLaterChanges(restored, changes);
        const { differences, ...counts } = document;
        return { document, counts, lines: [differencesText(differences)] };
      };
    },
  };
}

function unknownText(newestChange: string | null): string {
  return (
    `What was revoked after ${newestChange ?? 'the backup'} is not known: disable again the users, and revoke again the ` +
    'legacy clients, that were disabled or revoked since'
  );
}
