import type { TableChecksum } from '../table-checksums.ts';
import type { DataTable } from '../tenant-tables.ts';
import type { CopiedPrefix, NumberedTable } from './copy-ahead.ts';
import type { TableCounters } from './table-counters.ts';

/** What the target contains, and how the source can be compared with that. */
export interface CopiedTables {
  readonly tables: readonly DataTable[];
  /** The append-only tables among them: behind the fence, only their last rows are missing. */
  readonly numbered: readonly NumberedTable[];
  readonly prefixes: ReadonlyMap<string, CopiedPrefix>;
  /** The counters of changes from before the copy, by table; a table that has others now may have changed since. */
  readonly counters: ReadonlyMap<string, TableCounters>;
  /** Of the tables that were copied whole. */
  readonly checksums: ReadonlyMap<string, TableChecksum>;
  /** How long these took to copy and to compare, in ms. */
  readonly durations: ReadonlyMap<string, number>;
}
