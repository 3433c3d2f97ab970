import { defineOperation, type Help, type Operation } from '../../command/operation.ts';
import { amount, argument, option } from '../../command/operation-fields.ts';
import { tableText } from '../../command/text-table.ts';
import { endSessions, moveInterrupt, observeRun, parseAmount } from './move-results.ts';
import type { SwitchKind, SwitchResult } from './restored-databases.ts';

const chosen = {
  slug: argument('slug'),
  database: option('<name>', 'the restored database, if there are several: databases <slug>', {
    kind: 'database',
    isAdvanced: true,
  }),
};

const diff = defineOperation({
  name: 'restore diff',
  help: {
    description:
      'count the rows of each table that a tenant has added, changed and removed since its ' +
      'restored data',
    examples: ['restore diff acme'],
  },
  fields: chosen,
  effect: 'reads',
  async run({ slug, database }, { installation, output, progress }) {
    const { diffDatabases } = await import('./diff-databases.ts');
    progress.step(`comparing ${slug} with its restored data`);
    const document = await diffDatabases(installation, slug, database);
    const counts = document.tables.map(({ keys: _, ...each }) => each);
    const next = `Put the restored data in place: bin/backoffice restore swap ${slug}`;
    const same = `${slug} and ${document.database} have the same data`;
    const { notCompared } = document;
    const rest = notCompared.length > 0 ? [`Not compared: ${notCompared.join(', ')}.`] : [];
    output.result(document, () =>
      counts.length > 0
        ? [tableText(counts, ''), ...rest, '', next].join('\n')
        : [notCompared.length > 0 ? `${same} in what was compared.` : `${same}.`, ...rest].join(
            '\n',
          ),
    );
  },
});

const defineSwitch = (kind: SwitchKind, help: Help): Operation =>
  defineOperation({
    name: `restore ${kind}`,
    help,
    fields: {
      ...chosen,
      keep: amount('hours', 'how long the present data is kept', {
        label: 'Keep the present data',
        parse: parseAmount('hours'),
        default: 720,
      }),
      endSessions,
    },
    effect: 'destroys',
    handling: { interrupt: moveInterrupt },
    async plan({ slug, database }, { installation }) {
      const { planSwitch } = await import('./restored-databases.ts');
      const { withoutEntityText } = await import('../copy/users-without-entity.ts');
      const planned = await planSwitch(installation, slug, kind, database);
      const { target, isCurrent, stays, withoutEntity } = planned;
      const which = kind === 'swap' ? `its data of ${target.origin}` : 'its former data';
      const { database: name, origin } = target;
      const document = {
        tenant: slug,
        database: name,
        origin,
        isCurrent,
        stays,
        withoutEntity,
        state: 'planned',
      };
      const lost = stays.length > 0 ? ` It alone has: ${stays.join(', ')}.` : '';

      return {
        document,
        text: () =>
          isCurrent
            ? `${slug} has ${which} already.`
            : `${slug} would get ${which}, in ${name}. Its webhooks stay as they are. What it ` +
              `has now would be kept.${lost}${withoutEntityText(withoutEntity)}`,
        confirm: { name: slug, consequence: `gets ${which}; what it has now is kept` },
      };
    },
    async run({ slug, database, keep, endSessions }, context) {
      const { switchDatabase } = await import('./restored-databases.ts');
      const request = { kind, database, keepSeconds: keep * 3_600, endSessions };
      const result = await switchDatabase(context.installation, slug, request, observeRun(context));
      context.output.result(result, () => switchText(kind, result));
    },
  });

/** The operations on the restored data of a tenant. */
export const restoredOperations = [
  diff,
  defineSwitch('swap', {
    description: 'put the restored data of a tenant in place; its requests wait meanwhile',
    examples: ['restore swap acme --reason "wrong import on Monday"'],
  }),
  defineSwitch('back', {
    description: 'undo swap: give a tenant its former data back',
    examples: ['restore back acme'],
  }),
];

function switchText(kind: SwitchKind, { tenant, pauseMs }: SwitchResult): string {
  const waited = `Its requests waited for ${Math.round(pauseMs)} ms.`;
  return kind === 'swap'
    ? `${tenant} has the restored data. ${waited} The former data is kept; undo it: ` +
        `bin/backoffice restore back ${tenant}`
    : `${tenant} has its former data. ${waited}`;
}
