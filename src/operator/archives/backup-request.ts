import type { Retention } from '../../config/config-values.ts';

/** What a backup run is to archive. */
export interface BackupRequest {
  /** Only these tenants; undefined: all. */
  readonly slugs?: readonly string[] | undefined;
  /** Databases that are archived at the same time. */
  readonly concurrency: number;
  readonly keep: Retention;
}

/** The result of a run for one database. */
export interface BackupOutcome {
  /** The tenant; null for the control database. */
  slug: string | null;
  state: 'archived' | 'unchanged' | 'failed';
  file: string | null;
  rows: number;
  bytes: number;
  ms: number;
  error: string | null;
}
