import { tableText } from '../../command/text-table.ts';
import type { PrunedDatabase } from './prune-databases.ts';

/**
 * Formats databases that are dropped or serve their tenants, and below them what the dropped
 * ones hold.
 */
export function prunedText(pruned: readonly PrunedDatabase[], whenEmpty: string): string {
  const rows = pruned.map(({ holds: _, onlyHere: __, reason: ___, ...row }) => row);
  return [tableText(rows, whenEmpty), ...holdingLines(pruned)].join('\n');
}

/**
 * Returns a line for each database in which somebody else has made something, of which all is
 * named, and for each that does not serve.
 */
export function holdingLines(pruned: readonly PrunedDatabase[]): string[] {
  return pruned.flatMap(({ database, action, holds, reason }) => {
    if (reason !== undefined) return [`${reason}.`];
    if (holds.length === 0) return [];
    const remedy = action === 'refuse' ? ' It is not dropped without --leave-schemas.' : '';
    return [`With ${database}: ${holds.join(', ')}.${remedy}`];
  });
}
