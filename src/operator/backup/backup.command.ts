import type { Installation } from '../../control/installation.ts';
import { defineOperation } from '../command/operation.ts';
import { optionalArgument } from '../command/operation-fields.ts';
import { countText } from '../command/texts.ts';
import { readTenant } from '../registry/read-tenants.ts';
import { keygenOperation } from './archive/keygen.command.ts';
import { initOperation } from './backup-init.command.ts';
import { runOperation } from './backup-run.command.ts';
import { archiveRow, unremovedLines } from './backup-text.ts';
import { drillOperation, verifyOperation } from './check/check.command.ts';
import { recogniseOperation } from './recognise.command.ts';
import { openBackupTarget } from './target/open-target.ts';

const list = defineOperation({
  name: 'backup list',
  help: {
    description:
      'list the archives, and the objects of the target that have the name of one, the newest ' +
      'first',
    examples: ['backup list', 'backup list acme -o wide'],
  },
  fields: { slug: optionalArgument('slug', { description: 'only those of one tenant' }) },
  effect: 'reads',
  handling: { result: 'list' },
  async run({ slug }, { installation, output }) {
    const target = await openBackupTarget(installation);
    const { listArchives } = await import('./list-archives.ts');
    const { readIdentities } = await import('./archive/identities.ts');
    const { recipients, identityFile } = installation.config.backup;
    const identities = identityFile === undefined ? [] : await readIdentities(identityFile);
    const guid = await guidOf(installation, slug);
    const archives = await listArchives(installation, target, guid, recipients, identities);

    output.list(archives, {
      row: archiveRow,
      wide: ({ name, fault }) => ({ name, fault }),
      name: ({ name }) => name,
      empty: `${target.description} has no archive. Make one: bin/backoffice backup run --all`,
    });
  },
});

const prune = defineOperation({
  name: 'backup prune',
  help: {
    description:
      'remove the archives that BACKUP_KEEP does not keep, as each run does, and what is left ' +
      'of purged tenants',
    examples: ['backup prune --dry-run', 'backup prune'],
  },
  effect: 'changes',
  handling: { isRoutine: true },
  async plan(_, { installation }) {
    const { planPruneArchives } = await import('./prune-archives.ts');
    const removed = await planPruneArchives(
      installation,
      await openBackupTarget(installation),
      installation.config.backup.keep,
    );

    return {
      document: { state: 'planned', removed },
      text: () => removed.join('\n') || 'Nothing would be removed.',
    };
  },
  async run(_, { installation, output }) {
    const { pruneArchives } = await import('./prune-archives.ts');
    const result = await pruneArchives(
      installation,
      await openBackupTarget(installation),
      installation.config.backup.keep,
    );

    output.result(result, () =>
      [
        `${countText(result.removed, 'archive')} removed.`,
        ...unremovedLines(result.notRemoved),
      ].join('\n'),
    );
    return result.notRemoved.length === 0;
  },
});

export const operations = [
  keygenOperation,
  initOperation,
  runOperation,
  list,
  verifyOperation,
  drillOperation,
  recogniseOperation,
  prune,
];

async function guidOf(
  installation: Installation,
  slug: string | undefined,
): Promise<string | undefined> {
  return slug === undefined ? undefined : (await readTenant(installation, slug)).guid;
}
