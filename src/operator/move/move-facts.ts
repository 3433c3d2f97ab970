import type pg from 'pg';
import type { Move } from './move-store.ts';

/** Records numbers of a move, or its error, for people. */
export async function recordFacts(
  control: pg.Client,
  { id, epoch }: Move,
  facts: {
    bytes?: number;
    rows?: number;
    copyMs?: number;
    checksums?: object;
    error?: string | null;
  },
): Promise<void> {
  const { bytes, rows, copyMs, checksums, error } = facts;
  await control.query(
    `update tenant_moves
        set bytes = coalesce($3, bytes), rows = coalesce($4, rows), copy_ms = coalesce($5, copy_ms),
            checksums = coalesce($6::jsonb, checksums), error = case when $8 then $7 else error end
      where id = $1 and epoch = $2`,
    [
      id,
      epoch,
      bytes,
      rows,
      copyMs === undefined ? undefined : Math.round(copyMs),
      checksums && JSON.stringify(checksums),
      error,
      error !== undefined,
    ],
  );
}
