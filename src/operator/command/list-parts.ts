import type { ListPage } from './operation.ts';
import { amount, option, parsePositive } from './operation-fields.ts';

/**
 * Returns the fields of an operation that lists numbered items.
 * @param items their noun, in the plural
 */
export function pageFields<const Limit extends number>(items: string, limit: Limit) {
  return {
    limit: amount(items, `at most so many ${items}`, {
      label: 'At most',
      default: limit as number,
      isAdvanced: true,
    }),
    before: option('<number>', 'only those before this one: the older ones of a long list', {
      label: 'Before number',
      kind: 'text',
      parse: parsePositive,
      isAdvanced: true,
    }),
  };
}

/**
 * Makes a page of the rows that a query has returned. Each row has the number of all rows.
 * @param rows at most one more than `limit`
 */
export function pageOfList<Item extends { readonly id: number }>(
  rows: readonly Item[],
  limit: number,
  counts: { readonly total: number; readonly newer: number },
): ListPage<Item> {
  const items = rows.slice(0, limit);
  const older = rows.length > limit ? (items.at(-1)?.id ?? null) : null;

  return { items, ...counts, older };
}

/**
 * Describes the part of a list that a page has, such as `50 of 167`; undefined if it has all.
 */
export function pageText({ items, total, newer }: ListPage<object>): string | undefined {
  if (items.length === total) return undefined;
  if (newer === 0 || items.length === 0) return `${items.length} of ${total}`;

  return `${newer + 1} to ${newer + items.length} of ${total}`;
}
