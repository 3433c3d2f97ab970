import { defineList } from '../command/define-list.ts';
import { type Context, defineOperation } from '../command/operation.ts';
import { argument, option, optionalArgument, parseNames } from '../command/operation-fields.ts';
import { tableText } from '../command/text-table.ts';
import type { ComparedRow, RowState } from './compare-pack.ts';
import type { Pack } from './read-pack.ts';

const fields = {
  slug: argument('slug'),
  packs: option('<names>', 'names of packs, separated by commas', { parse: parseNames }),
};

const list = defineList({
  name: 'packs list',
  description: 'list the packs, and with a slug how many of their rows the tenant has',
  fields: { slug: optionalArgument('slug') },
  examples: ['packs list', 'packs list acme'],
  async items({ slug }, { installation }) {
    const { packNames, readPack } = await import('./read-pack.ts');
    const { compareTenantPacks } = await import('./tenant-packs.ts');
    if (slug === undefined) return (await Promise.all(packNames.map(readPack))).map(summary);
    const compared = await compareTenantPacks(installation, slug, packNames);
    return compared.map(each => ({ ...summary(each.pack), ...countStates(each.compared) }));
  },
  row: ({ sha256: _, source: __, ...row }) => row,
  wide: ({ source }) => ({ source }),
  nameOf: ({ pack }) => pack,
  empty: 'This build has no pack.',
});

const diff = defineOperation({
  name: 'packs diff',
  description: 'show the rows of packs that a tenant lacks, has deleted, or has with other values',
  fields,
  examples: ['packs diff acme --packs currencies'],
  effect: 'reads',
  async run(values, context) {
    const { rows, text } = await differences(values, context);
    context.output.result(rows, text);
  },
});

const apply = defineOperation({
  name: 'packs apply',
  description: 'add the rows of packs that a tenant lacks; rows that it changed or deleted stay as they are',
  fields,
  examples: ['packs apply acme --packs countries,units', 'packs apply acme # all packs'],
  effect: 'changes',
  async plan(values, context) {
    const { rows } = await differences(values, context);
    const added = rows.filter(({ state }) => state === 'missing').map(({ pack, code }) => ({ pack, code }));
    return {
      document: { state: 'planned', added },
      text: () => tableText(added, `${values.slug} has every row of the packs: none would be added.`),
    };
  },
  async run({ slug, packs = [] }, { installation, output }) {
    const { checkPackNames } = await import('./read-pack.ts');
    const { applyTenantPacks } = await import('./tenant-packs.ts');
    const applied = await applyTenantPacks(installation, slug, checkPackNames(packs));
    const rows = applied.map(({ pack, added, compared }) => {
      const { same, changed, deleted } = countStates(compared);
      return { pack: pack.name, edition: pack.edition, added, same, changed, deleted };
    });
    output.result(rows, () => tableText(rows, 'No pack was named.'));
  },
});

export const operations = [list, diff, apply];

async function differences(
  { slug, packs = [] }: { slug: string; packs: string[] | undefined },
  { installation }: Context<'installation'>,
) {
  const { checkPackNames } = await import('./read-pack.ts');
  const { compareTenantPacks } = await import('./tenant-packs.ts');
  const found = await compareTenantPacks(installation, slug, checkPackNames(packs));
  const rows = found.flatMap(({ pack, compared }) =>
    compared
      .filter(({ state }) => state !== 'same')
      .map(({ code, state, differences }) => ({ pack: pack.name, code, state, differences })),
  );
  const text = (): string =>
    tableText(
      rows.map(({ differences, ...row }) => ({ ...row, differences: differencesText(differences) })),
      `${slug} has every row of the packs as it is there.`,
    );
  return { rows, text };
}

function summary({ name, title, edition, source, sha256, rows }: Pack) {
  return { pack: name, title, edition, source, sha256, rows: rows.length };
}

function countStates(compared: readonly ComparedRow[]): Record<RowState, number> {
  const counts: Record<RowState, number> = { missing: 0, same: 0, changed: 0, deleted: 0 };
  for (const { state } of compared) counts[state]++;
  return counts;
}

function differencesText(differences: ComparedRow['differences']): string {
  const texts = Object.entries(differences).map(
    ([field, { pack, tenant }]) => `${field} ${JSON.stringify(tenant)}, in the pack ${JSON.stringify(pack)}`,
  );
  return texts.join('; ') || '–';
}
