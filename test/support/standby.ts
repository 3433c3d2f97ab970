import { cp, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createRunner } from '../../src/lib/embedded/binaries.ts';
import { findRunningPostgres } from '../../src/lib/embedded/pid-file.ts';
import { launchServer, stopServer } from '../../src/lib/embedded/postgres.ts';
import { withConnection } from '../../src/lib/postgres/connection.ts';
import { eventually } from './eventually.ts';

/** A server that follows another one, until it is promoted. */
export class Standby {
  /** Superuser URL of the database `postgres`. */
  readonly url: string;
  /** Its folder, with which a further standby can follow it. */
  readonly folder: string;
  readonly #data: string;
  readonly #primaryUrl: string;

  private constructor(url: string, folder: string, primaryUrl: string) {
    this.url = url;
    this.folder = folder;
    this.#data = join(folder, 'postgres');
    this.#primaryUrl = primaryUrl;
  }

  /**
   * Copies the data folder of a primary, as `pg_basebackup` would, and starts a standby on it.
   * @param primaryUrl superuser's
   * @param primaryFolder its folder, which `startEmbeddedPostgres` has made
   * @param folder of the standby, which its caller removes
   */
  static async start(primaryUrl: string, primaryFolder: string, folder: string): Promise<Standby> {
    const data = join(folder, 'postgres');
    const maxConnections = await withConnection(primaryUrl, async client => {
      await client.query(`select pg_backup_start('standby', true)`);
      await cp(join(primaryFolder, 'postgres'), data, { recursive: true });
      const { rows } = await client.query<{ label: string }>(
        'select labelfile as label from pg_backup_stop()',
      );
      await writeFile(join(data, 'backup_label'), rows[0]?.label ?? '');
      const settings = await client.query<{ max_connections: string }>('show max_connections');
      return settings.rows[0]?.max_connections;
    });
    await rm(join(data, 'postmaster.pid'), { force: true });
    await writeFile(join(data, 'standby.signal'), '');

    const { hostname, port, password } = new URL(primaryUrl);
    const source = `primary_conninfo=host=${hostname} port=${port} user=postgres password=${password}`;
    // A standby accepts no queries with fewer than its primary.
    const settings = [source, `max_connections=${maxConnections}`];
    await launchServer(data, folder, await createRunner(data), settings);
    const url = await eventually(async () => {
      const own = Object.assign(new URL(primaryUrl), {
        port: (await findRunningPostgres(data))?.port,
      }).href;
      const following = 'select from pg_stat_wal_receiver where pg_is_in_recovery()';
      return withConnection(
        own,
        async client => (await client.query(following)).rowCount === 1 && own,
      );
    }, 20_000);

    return new Standby(url, folder, primaryUrl);
  }

  /**
   * Resolves when it has what the primary has now, and is a primary itself. The other one stays
   * as it is.
   */
  async promote(): Promise<void> {
    const position = await withConnection(this.#primaryUrl, async client => {
      await client.query('set synchronous_commit = on');
      // flushes all earlier commits
      await client.query(`select pg_logical_emit_message(true, 'promote', '')`);
      const { rows } = await client.query<{ at: string }>(
        'select pg_current_wal_flush_lsn() as at',
      );
      return rows[0]?.at;
    });
    await withConnection(this.url, async client => {
      const replayed = 'select pg_last_wal_replay_lsn() >= $1::pg_lsn as done';
      await eventually(async () => (await client.query(replayed, [position])).rows[0]?.done);
      await client.query('select pg_promote()');
    });
  }

  async close(): Promise<void> {
    await stopServer(this.#data);
  }
}
