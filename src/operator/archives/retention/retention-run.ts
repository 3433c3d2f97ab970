import type { Queryable } from '../../../postgres/shared-connection.ts';
import type { HistoryKind } from '../../retention/history-kinds.ts';
import type { Keyring } from '../data-keys.ts';
import type { LedgerEntry } from '../ledger.ts';
import type { BackupTarget } from '../targets/backup-target.ts';

/** What all tenants of a run share. */
export interface RetentionRun {
  readonly control: Queryable;
  readonly target: BackupTarget;
  readonly keyring: Keyring;
  /** All complete archives of the target, the newest first. */
  readonly archives: readonly LedgerEntry[];
  /** How long archives with removed rows are kept. */
  readonly keepDays: number;
  readonly requestedBy: string;
  /** Check everything, and remove nothing. */
  readonly dryRun: boolean;
  /** Remove also more than half of the rows. */
  readonly confirmed: boolean;
  /** After its abort no further batch is begun. */
  readonly signal: AbortSignal | undefined;
}

/**
 * Rows of one kind that were removed from a tenant, or would be. Times, in ISO 8601, are those of the first and last
 * row.
 */
export interface RemovedRows {
  kind: HistoryKind;
  rows: number;
  oldest: string | null;
  newest: string | null;
  removedBefore: string;
  archive: string;
  file: string;
}
