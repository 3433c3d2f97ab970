import { type OutputOptions, outputFormat, printPart, printResult } from './output.ts';
import { fullTableText, tableText } from './text-table.ts';

/** How a list appears as text. */
interface ListText<Item> {
  /** The columns of an item. */
  readonly row: (item: Item) => object;
  /** Further columns, for `-o wide`. */
  readonly wide?: (item: Item) => object;
  /** What other commands call an item, for `-o name`. */
  readonly name: (item: Item) => string | number;
  /** The text without any item. */
  readonly empty: string;
}

/**
 * Prints the items that a command lists, in the format that `-o` names.
 * @param isWide true for an option with the effect of `-o wide`
 * @param isRepeated true for one of several documents, such as with `--watch`: with `--json`, one line
 */
export function printList<Item extends object>(
  options: OutputOptions,
  items: readonly Item[],
  { row, wide, name, empty }: ListText<Item>,
  isWide = false,
  isRepeated = false,
): void {
  const print = isRepeated ? printPart : printResult;
  const format = isWide ? 'wide' : outputFormat();
  if (format === 'name') {
    if (items.length > 0) print(options, items, () => items.map(name).join('\n'));
    return;
  }
  print(options, items, () =>
    format === 'wide'
      ? fullTableText(
          items.map(item => ({ ...row(item), ...wide?.(item) })),
          empty,
        )
      : tableText(items.map(row), empty),
  );
}
