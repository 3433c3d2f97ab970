import { defineOperation } from '../command/operation.ts';
import { argument, optionNames } from '../command/operation-fields.ts';
import { tableText } from '../command/text-table.ts';
import type { ComparedRow, RowState } from './compare-pack.ts';
import { packNames } from './pack-names.ts';

const apply = defineOperation({
  name: 'packs apply',
  help: {
    description:
      'add the rows of packs that a tenant lacks; rows that it changed or deleted stay as they are',
    examples: [
      'packs apply acme --packs countries,units',
      'packs apply acme --dry-run # all packs, row by row',
    ],
    dryRun: 'show each row that would be added, and each that the tenant has changed or deleted',
  },
  fields: {
    slug: argument('slug'),
    packs: optionNames('names of packs', packNames, { otherwise: 'all' }),
  },
  effect: 'changes',
  async plan({ slug, packs = [] }, { installation }) {
    const { checkPackNames } = await import('./read-pack.ts');
    const { compareTenantPacks } = await import('./tenant-packs.ts');
    const found = await compareTenantPacks(installation, slug, checkPackNames(packs));
    const rows = found.flatMap(({ pack, compared }) =>
      compared
        .filter(({ state }) => state !== 'same')
        .map(({ code, state, differences }) => ({ pack: pack.name, code, state, differences })),
    );

    return {
      document: { state: 'planned', rows },
      text: () =>
        tableText(
          rows.map(({ state, differences, ...row }) => ({
            ...row,
            state: planned[state],
            differences: differencesText(differences),
          })),
          `${slug} has every row of the packs as it is there: none would be added.`,
        ),
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

export const operations = [apply];

/** The words of the plan for a row, by its state. */
const planned: Readonly<Record<RowState, string>> = {
  missing: 'would be added',
  same: 'is there',
  changed: 'stays as the tenant changed it',
  deleted: 'stays deleted',
};

function countStates(compared: readonly ComparedRow[]): Record<RowState, number> {
  const counts: Record<RowState, number> = { missing: 0, same: 0, changed: 0, deleted: 0 };
  for (const { state } of compared) counts[state]++;
  return counts;
}

function differencesText(differences: ComparedRow['differences']): string {
  const texts = Object.entries(differences).map(
    ([field, { pack, tenant }]) =>
      `${field} ${JSON.stringify(tenant)}, in the pack ${JSON.stringify(pack)}`,
  );
  return texts.join('; ') || '–';
}
