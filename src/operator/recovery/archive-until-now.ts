import { setTimeout as sleep } from 'node:timers/promises';
import { databaseUrl } from '../../control/server-urls.ts';
import { withConnection } from '../../postgres/connection.ts';

const maxArchiveMs = 60_000;
const pollMs = 50;

/**
 * Lets a server archive its write-ahead log up to a transaction that is later than every moment in the past: a recovery
 * must find one to know that it has all earlier ones. Waits for that for 60 s at most. A server that is gone, that does
 * not archive, or whose login may not do it, has in its archive what it has: the recovery says whether that suffices.
 * @param url of the server, with the rights of the operator
 */
export async function archiveUntilNow(url: string): Promise<void> {
  await withConnection(databaseUrl(url, 'postgres'), async client => {
    const { rows } = await client.query<{ mode: string }>(`select current_setting('archive_mode') as mode`);
    if (rows[0]?.mode === 'off') return;
    await client.query('select pg_current_xact_id()');
    const { rows: switched } = await client.query<{ segment: string }>(
      'select pg_walfile_name(pg_switch_wal()) as segment',
    );
    for (const deadline = performance.now() + maxArchiveMs; performance.now() < deadline; await sleep(pollMs)) {
      // The first 8 digits are the timeline, which a failover changes.
      const { rows: done } = await client.query<{ isArchived: boolean }>(
        `select substr(last_archived_wal, 9, 16) collate "C" >= substr($1, 9) as "isArchived" from pg_stat_archiver`,
        [switched[0]?.segment],
      );
      if (done[0]?.isArchived) return;
    }
  }).catch(() => {});
}
