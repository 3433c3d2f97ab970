import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { BaseBackup } from './base-folder.ts';

export interface RecoveryOptions {
  base: BaseBackup;
  /** The folder of this run. Its folder `data` is the data directory; the server removes the whole at its end. */
  folder: string;
  until: RecoveryTarget;
}

/**
 * Where a recovery ends: before the first transaction that was committed after a moment, or right after a transaction.
 * A moment has a numeric zone, because a setting knows no abbreviations such as Z.
 */
export type RecoveryTarget = { readonly time: string } | { readonly transaction: number };

/**
 * Writes the settings with which a scratch server recovers a base backup, and its access rules, into its folder.
 * @param sockets the folder that it listens in; no other login may open it
 */
export async function writeSettings({ base, folder, until }: RecoveryOptions, sockets: string): Promise<void> {
  const quote = (text: string): string => `'${text.replaceAll("'", "''")}'`;
  const shell = (path: string): string => `'${path.replaceAll("'", `'\\''`)}'`.replaceAll('%', '%%');
  // A segment that is not archived yet is still in the folder of the server; meanwhile it may get to the archive.
  const sources = [base.walArchive, join(base.dataDirectory, 'pg_wal'), base.walArchive];
  const settings = {
    restore_command: quote(sources.map(source => `cp ${shell(source)}/%f "%p" 2>/dev/null`).join(' || ')),
    ...('time' in until
      ? { recovery_target_time: quote(until.time) }
      : { recovery_target_xid: quote(String(until.transaction)) }),
    recovery_target_action: 'promote',
    // Changes of databases whose files are missing cannot be applied, and need not be.
    ignore_invalid_pages: 'on',
    allow_in_place_tablespaces: 'on',
    hot_standby: 'off',
    archive_mode: 'off',
    listen_addresses: "''",
    unix_socket_directories: quote(sockets),
    unix_socket_permissions: '0700',
    hba_file: quote(join(folder, 'pg_hba.conf')),
    ident_file: quote(join(folder, 'pg_ident.conf')),
    max_connections: '20',
    max_prepared_transactions: String(base.maxPreparedTransactions),
    max_logical_replication_workers: '0',
    max_parallel_workers: '0',
    autovacuum: 'off',
    fsync: 'off',
    full_page_writes: 'off',
    synchronous_commit: 'off',
    shared_buffers: '64MB',
    default_transaction_read_only: 'on',
    log_timezone: "'UTC'",
    timezone: "'UTC'",
    logging_collector: 'off',
  };
  const text = Object.entries(settings).map(([name, value]) => `${name} = ${value}\n`);
  await writeFile(join(folder, 'postgresql.conf'), text.join(''), { mode: 0o600 });
  // Only this login can reach the socket, whose folder is closed to others.
  await writeFile(join(folder, 'pg_hba.conf'), 'local all all trust\n', { mode: 0o600 });
  await writeFile(join(folder, 'pg_ident.conf'), '', { mode: 0o600 });
  await writeFile(join(folder, 'data', 'recovery.signal'), '', { mode: 0o600 });
}
