import { defineOperation } from '../command/operation.ts';
import { optionalArgument } from '../command/operation-fields.ts';
import { hasFailed, reportOutcomes } from '../command/run-fleet.ts';
import { countText } from '../command/texts.ts';
import { readTenant } from '../registry/read-tenants.ts';
import type { RecognisedObject } from './recognise-archives.ts';
import { maxBytesField } from './restore/max-bytes.ts';
import { openBackupTarget } from './target/open-target.ts';

export const recogniseOperation = defineOperation({
  name: 'backup recognise',
  help: {
    description:
      'open the objects of the target that have the name of an archive and count for nothing, ' +
      'and count those that this installation has written',
    examples: ['backup recognise # on the recovery host', 'backup recognise acme'],
    more: `An archive counts when the control database has a row of it: that of its run. After a restore of the control database, and
after a failover that has lost its last rows, the target has archives without one. Each is opened and read to its end; its code
proves that this installation has written it.`,
    json: 'print JSON lines on stdout, the last one with the totals',
  },
  fields: {
    slug: optionalArgument('slug', { description: 'only those of one tenant' }),
    maxBytes: maxBytesField,
  },
  effect: 'changes',
  handling: {
    isTraced: true,
    opensArchives: () => true,
    interrupt: { text: 'the object that is being read' },
  },
  async plan({ slug }, { installation }) {
    const { planRecognition } = await import('./recognise-archives.ts');
    const tenant = slug === undefined ? undefined : (await readTenant(installation, slug)).guid;
    const objects = await planRecognition(
      installation,
      await openBackupTarget(installation),
      tenant,
    );

    return {
      document: { state: 'planned', objects },
      text: () => objects.join('\n') || 'Every object with the name of an archive counts already.',
    };
  },
  async run({ slug, maxBytes }, context) {
    const { installation, output } = context;
    const { recogniseArchives } = await import('./recognise-archives.ts');
    const tenant = slug === undefined ? undefined : (await readTenant(installation, slug)).guid;
    const target = await openBackupTarget(installation);

    const outcomes = await reportOutcomes(context, { hasFailed, text: outcomeText }, observers =>
      recogniseArchives(installation, target, { tenant, maxBytes }, observers),
    );
    const failed = outcomes.filter(hasFailed).length;
    const recognised = outcomes.length - failed;
    output.part(
      { recognised, failed },
      () => `${countText(recognised, 'archive')} recognised, ${failed} not.`,
    );

    return failed === 0;
  },
});

function outcomeText({ archive, state, error }: RecognisedObject): string {
  return state === 'recognised' ? `${archive}: recognised` : `${archive}: ${error}`;
}
