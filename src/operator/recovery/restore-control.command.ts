import type { Installation } from '../../control/installation.ts';
import { databaseNameOf } from '../../control/server-urls.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import type { ControlArchive } from '../backup/lost-control.ts';
import { maxBytesField } from '../backup/restore/max-bytes.ts';
import { type Context, defineOperation } from '../command/operation.ts';
import { amount, flag, option, type Values } from '../command/operation-fields.ts';
import { hasFailed } from '../command/run-fleet.ts';
import { countText, sizeText } from '../command/texts.ts';
import type { ControlAccess, NewestControl } from './control-archives.ts';
import type { ControlSource } from './control-source.ts';
import { lostFactorLines } from './lost-factors.ts';
import type { LostSecrets } from './replace-master-key.ts';
import { replayedLines } from './replay.ts';
import type { RestoredControl, RestoreSources } from './restore-control.ts';
import { fromField } from './restore-data.ts';

const fields = {
  archive: option('<name>', 'a part of the name of the archive', {
    kind: 'text',
    otherwise: 'the newest that can be used',
  }),
  installation: option(
    '<id>',
    'the begin of the id of the installation, where the target has archives of several',
    { kind: 'text' },
  ),
  from: fromField,
  all: flag('also every tenant whose database is missing'),
  concurrency: amount('tenants', 'tenants restored at the same time', {
    label: 'At the same time',
    default: 4,
  }),
  withoutMac: option(
    '<name>',
    'the master key is lost, and MASTER_KEY is a new one: take the archive of --archive although ' +
      'nobody knows who has written it. Type the name of the database',
    { kind: 'text' },
  ),
  maxBytes: maxBytesField,
  withoutReplay: option(
    '<name>',
    'with --from: no target or identity can be had, so what was revoked later is valid again. Type the name of the database',
    { kind: 'text' },
  ),
};
type Fields = Values<typeof fields>;

export const restoreControlOperation = defineOperation({
  name: 'control restore',
  help: {
    description:
      'restore the control database from an archive into an empty one, and with --all the ' +
      'lost tenants',
    examples: [
      'control restore # the control database is lost, the tenants are not',
      'control restore --all # everything is lost: a new machine, the archives, an identity and the master key',
      'control restore --installation 3f2a # where several installations share the target',
      'control restore --from < url-file # its state on a recovered copy of its server',
    ],
    more: `Restores the newest archive of the control database in BACKUP_TARGET, or with --from its state on a recovered server, into
an empty control database, with the MASTER_KEY that the installation had and the identity in BACKUP_IDENTITY_FILE, and makes it
safe as after-restore does. From an older archive or another source, what the newest archive has as disabled, revoked, suspended,
deleted or purged stays so, and no second factor comes back. With --all, then restores every tenant whose database is missing. Run it again after an interruption:
it continues. Start the service afterwards, with the same MASTER_KEY.`,
    json: 'print JSON lines on stdout, the last one with the totals',
  },
  fields,
  effect: 'changes',
  handling: { control: 'made' },
  async plan({ all, ...chosen }, context) {
    const { installation } = context;
    const { requireRestorableControl } = await import('./restoring-database.ts');
    const { source, later, refused } = await choose(installation, chosen);
    await requireRestorableControl(installation.controlUrl, source);

    const tenants = all ? ', and then every tenant whose database is missing' : '';
    const lines = [
      ...refusedLines(refused),
      `The control database would be restored from ${source.description}${tenants}.`,
      ...(later ? [`What ${later.description} has taken away would stay away.`] : []),
    ];
    return {
      document: {
        source: source.description,
        at: source.at.toISOString(),
        refused,
        all,
        state: 'planned',
      },
      text: () => lines.join('\n'),
    };
  },
  async run({ all, concurrency, ...chosen }, context) {
    const { installation, output, progress } = context;
    const { restoreControl } = await import('./restore-control.ts');
    const { endRestore } = await import('./restoring-database.ts');
    const startedAt = performance.now();

    const { source, later, restoreList, refused, knownUntil } = await choose(installation, chosen);
    for (const line of refusedLines(refused)) {
      output.warn(line);
    }
    const isKeyLost = chosen.withoutMac !== undefined;
    const restored = await restoreControl(
      installation,
      { source, later, restoreList, isKeyLost },
      step => progress.step(step),
    );
    const span = { from: knownUntil.toISOString(), until: new Date().toISOString() };
    output.part({ ...restored, unknown: span }, () => restoredText(restored));

    const { maxBytes } = chosen;
    const tenants = all ? await restoreTenants(context, { concurrency, isKeyLost, maxBytes }) : [];
    const failed = tenants.filter(hasFailed).length;
    if (failed === 0) await endRestore(installation);
    const seconds = Math.round((performance.now() - startedAt) / 10) / 100;
    output.part({ tenants: tenants.length, failed, seconds, unknown: span }, () =>
      [
        `${countText(tenants.length - failed, 'tenant')} restored, ${failed} failed, in ${seconds} s.`,
        `Nobody knows what was changed from ${span.from} to ${span.until}: disable and revoke again what was disabled and ` +
          'revoked in that time.',
        failed > 0
          ? 'Run the command again for the tenants that failed.'
          : 'Everybody logs in again. Start the service with the same MASTER_KEY. Check: ' +
            'bin/backoffice doctor',
      ].join('\n'),
    );

    return failed === 0;
  },
});

async function restoreTenants(
  context: Context,
  options: { concurrency: number; isKeyLost: boolean; maxBytes: number | undefined },
) {
  const { restoreLostTenants } = await import('./restore-lost-tenants.ts');

  return restoreLostTenants(context, options);
}

interface Choice extends Pick<NewestControl, 'refused'> {
  readonly source: ControlSource;
  /** The newest archive, if the source is older: access that is revoked in it stays revoked. */
  readonly later: ControlSource | undefined;
  /** Brings the list of archives up to date with the target; undefined: there is no target. */
  readonly restoreList: RestoreSources['restoreList'];
  /** The time after which no changes are known. */
  readonly knownUntil: Date;
}

/**
 * @throws {OperatorError} when there is no such source, or no later state can be read and the
 *   operator has not accepted that
 */
async function choose(
  opened: Installation,
  {
    archive,
    installation,
    from,
    withoutMac,
    maxBytes,
    withoutReplay,
  }: Omit<Fields, 'all' | 'concurrency'>,
): Promise<Choice> {
  const database = databaseNameOf(opened.controlUrl);
  if ([archive, installation, from].filter(value => value !== undefined).length > 1) {
    throw new OperatorError('Give one of --from, --archive and --installation', { usage: true });
  }
  if (withoutReplay !== undefined && from === undefined) {
    throw new OperatorError('Give --without-replay together with --from', { usage: true });
  }
  for (const typed of [withoutMac, withoutReplay]) {
    if (typed !== undefined && typed !== database) {
      throw new OperatorError(`That is not ${database}: nothing was changed`, { usage: true });
    }
  }

  const { recoveredControl } = await import('./recovered-control.ts');
  const { parseServerUrl } = await import('../servers/parse-server-url.ts');
  const recovered =
    from === undefined ? undefined : await recoveredControl(parseServerUrl(from), database);
  if (recovered && withoutReplay !== undefined) {
    return {
      source: recovered,
      later: undefined,
      restoreList: undefined,
      refused: [],
      knownUntil: recovered.at,
    };
  }

  const archives = await import('./control-archives.ts');
  const access = await archives.openControlAccess(opened, {
    withoutMac: withoutMac !== undefined,
    maxBytes,
  });
  const named =
    archive === undefined ? undefined : await archives.findNamedControl(access, archive);
  const id =
    (recovered ?? named)?.installation ?? (await archives.chooseInstallation(access, installation));
  if (withoutMac !== undefined) {
    if (!named) throw await unnamedArchive(access, id, database, recovered !== undefined);
    return unprovedChoice(access, named);
  }
  const { newest, refused } = await archives.findNewestControl(access, id);
  if (!newest) throw noArchive(access.target.description, refused, recovered?.installation);

  const newestSource = archives.archivedControl(newest);
  const isNewest = named === undefined || named.name === newest.name;
  const restored = isNewest ? newest : await archives.openNamedControl(access, named);
  const source = recovered ?? archives.archivedControl(restored);
  const isOlder = source.at < newestSource.at;

  return {
    source,
    later: isOlder ? newestSource : undefined,
    restoreList: archives.listRestorer(access, id, source.at, recovered ? undefined : restored),
    refused,
    knownUntil: isOlder ? newestSource.at : source.at,
  };
}

/**
 * Chooses an archive that the operator has named, without its code. Newer objects are named and
 * not read: nobody knows who has written them.
 */
async function unprovedChoice(access: ControlAccess, named: ControlArchive): Promise<Choice> {
  const archives = await import('./control-archives.ts');
  const opened = await archives.openNamedControl(access, named);
  const source = archives.archivedControl(opened);
  const newer = (await archives.listControlOf(access, named.installation)).filter(
    ({ time }) => time > named.time,
  );

  return {
    source,
    later: undefined,
    restoreList: archives.listRestorer(access, named.installation, source.at, opened),
    refused: newer.map(({ name }) => ({
      name,
      reason: 'without its code nobody knows who has written it',
    })),
    knownUntil: source.at,
  };
}

/** Returns the error of a restore without codes that does not name the archive. */
async function unnamedArchive(
  access: ControlAccess,
  installation: string,
  database: string,
  isRecovered: boolean,
): Promise<OperatorError> {
  if (isRecovered) {
    return new OperatorError(
      'Without codes nobody knows who has written the archive whose disabled users, revoked sessions and purges would ' +
        `stay away. If all of that may be valid again: --without-replay ${database}`,
      { usage: true },
    );
  }

  const archives = await import('./control-archives.ts');
  const [newest] = await archives.listControlOf(access, installation);
  if (!newest) return noArchive(access.target.description, [], installation);

  const { name, size, modifiedAt } = newest;
  return new OperatorError(
    'No list records the archives of a lost control database, and without its code nobody knows who has written one. ' +
      `Name the one that you know. The newest is ${name} (${sizeText(size)}, ${modifiedAt.toISOString()} by the clock of ` +
      `the target): --archive ${name} --without-mac ${database}`,
    { usage: true },
  );
}

/**
 * @param recovered the installation of the recovered control database, if that is the source
 */
function noArchive(
  target: string,
  refused: NewestControl['refused'],
  recovered: string | undefined,
): OperatorError {
  const [first] = refused;
  if (!first) {
    return new OperatorError(
      `The control database of the recovered server is of installation ${recovered}, of which ` +
        `${target} has no archive: nothing was changed`,
    );
  }

  return new OperatorError(
    `No archive of a control database in ${target} can be used. The newest, ${first.name}: ` +
      `${first.reason}. Set the MASTER_KEY of the lost installation, and BACKUP_IDENTITY_FILE ` +
      'to an identity of its recipients. If that key is lost, and you know where the archive ' +
      'comes from: --archive <name> --without-mac <name of the database>',
  );
}

function refusedLines(refused: NewestControl['refused']): string[] {
  return refused.map(({ name, reason }) => `The newer archive ${name} cannot be used: ${reason}.`);
}

function restoredText({ source, report }: RestoredControl): string {
  const lines = [`Restored the control database from ${source}.`];
  if (report?.replayed) lines.push(...replayedLines(report.replayed));
  if (report?.lost) lines.push(...lostLines(report.lost));

  return lines.join('\n');
}

/** Returns the next steps for the secrets that the lost master key has sealed, line by line. */
function lostLines({
  tenants,
  webhookTenants,
  factors,
  factorsLost,
  servers,
}: LostSecrets): string[] {
  return [
    'MASTER_KEY is the master key from now on. What the lost one has sealed, nobody can open:',
    ...servers.map(
      name =>
        `The URL of server ${name}. Give it again: bin/backoffice server add ${name} < url-file`,
    ),
    `The passwords of the login roles of ${countText(tenants, 'tenant')}. Replace them, with the commands of: bin/backoffice doctor`,
    ...(webhookTenants > 0
      ? [
          `The secrets of the webhooks of ${countText(webhookTenants, 'tenant')}. Their administrators rotate them.`,
        ]
      : []),
    ...(factors > 0
      ? [`The keys of ${countText(factors, 'authenticator app')} of people, which are removed.`]
      : []),
    ...lostFactorLines('Have no other second factor', factorsLost),
    'The key of archives. Older archives of tenants are restored with --without-mac. Make new ones: bin/backoffice backup run --all',
  ];
}
