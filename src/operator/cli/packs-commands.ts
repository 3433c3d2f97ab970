import type { Command } from 'commander';
import type { ComparedRow, RowState } from '../packs/compare-pack.ts';
import type { Pack } from '../packs/read-pack.ts';
import { withInstallation } from './command.ts';
import { jsonOption, type OutputOptions, printResult } from './output.ts';
import { printList } from './print-list.ts';
import { tableText } from './text-table.ts';

interface PackOptions extends OutputOptions {
  packs?: string[];
}

/** Flags, description and parser of `--packs`, for `Command.option`. */
export const packsOption = ['--packs <names>', 'names of packs, separated by commas', parseNames] as const;

function parseNames(value: string): string[] {
  return value.split(',').map(name => name.trim());
}

/** Adds the commands of `packs`: reference data of public standards. */
export function addPacksCommands(program: Command): void {
  const packs = program.command('packs').description('reference data of public standards, for tenants');
  packs
    .command('list')
    .description('list the packs, and with a slug how many of their rows the tenant has')
    .argument('[slug]')
    .option(...jsonOption)
    .action(
      withInstallation(async (installation, slug: string | undefined, options: OutputOptions) => {
        const { packNames, readPack } = await import('../packs/read-pack.ts');
        const { compareTenantPacks } = await import('../packs/tenant-packs.ts');
        const described = slug
          ? (await compareTenantPacks(installation, slug, packNames)).map(({ pack, compared }) => ({
              ...summary(pack),
              ...countStates(compared),
            }))
          : (await Promise.all(packNames.map(readPack))).map(summary);
        printList(options, described, {
          row: ({ sha256: _, source: __, ...row }) => row,
          wide: ({ source }) => ({ source }),
          name: ({ pack }) => pack,
          empty: 'This build has no pack.',
        });
      }),
    );
  packs
    .command('diff')
    .description('show the rows of packs that a tenant lacks, has deleted, or has with other values')
    .argument('<slug>')
    .option(...packsOption)
    .option(...jsonOption)
    .action(
      withInstallation(async (installation, slug: string, options: PackOptions) => {
        const { checkPackNames } = await import('../packs/read-pack.ts');
        const { compareTenantPacks } = await import('../packs/tenant-packs.ts');
        const compared = await compareTenantPacks(installation, slug, checkPackNames(options.packs ?? []));
        const rows = compared.flatMap(({ pack, compared }) =>
          compared
            .filter(({ state }) => state !== 'same')
            .map(({ code, state, differences }) => ({ pack: pack.name, code, state, differences })),
        );
        printResult(options, rows, () =>
          tableText(
            rows.map(({ differences, ...row }) => ({ ...row, differences: differencesText(differences) })),
            `${slug} has every row of the packs as it is there.`,
          ),
        );
      }),
    );
  packs
    .command('apply')
    .description('add the rows of packs that a tenant lacks; rows that it changed or deleted stay as they are')
    .argument('<slug>')
    .option(...packsOption)
    .option(...jsonOption)
    .action(
      withInstallation(async (installation, slug: string, options: PackOptions) => {
        const { checkPackNames } = await import('../packs/read-pack.ts');
        const { applyTenantPacks } = await import('../packs/tenant-packs.ts');
        const applied = await applyTenantPacks(installation, slug, checkPackNames(options.packs ?? []));
        const rows = applied.map(({ pack, added, compared }) => {
          const { same, changed, deleted } = countStates(compared);
          return { pack: pack.name, edition: pack.edition, added, same, changed, deleted };
        });
        printResult(options, rows, () => tableText(rows, 'No pack was named.'));
      }),
    );
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
