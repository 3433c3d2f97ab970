import type { TableFingerprints } from '../../postgres/change-counters.ts';
import type { DataTable } from '../schema/tenant-tables.ts';
import type { CopiedPrefix, NumberedTable } from './copy-ahead.ts';

/** What the target contains, and how the source can be compared with that. */
export interface CopiedTables {
  readonly tables: readonly DataTable[];
  /** The append-only tables among them: behind the fence, only their last rows are missing. */
  readonly numbered: readonly NumberedTable[];
  readonly prefixes: ReadonlyMap<string, CopiedPrefix>;
  /** From before the copy, by table. */
  readonly fingerprints: ReadonlyMap<string, TableFingerprints>;
  /** The number of rows in the tables that were copied whole. */
  readonly rows: number;
  /** How long these took to copy and to compare, in ms. */
  readonly durations: ReadonlyMap<string, number>;
}
