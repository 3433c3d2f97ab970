import type pg from 'pg';
import { withConnection } from '../../../lib/postgres/connection.ts';
import { breakOff } from '../../../lib/postgres/copy-out.ts';
import { canonicalTextSettings } from '../../schema/tenant-tables.ts';

/**
 * Connections of one run of a move, each opened on first use and kept until the run ends. A
 * commit is on the disk when it returns, whatever the settings of the server: a target that
 * crashes after the switch must not lose copied rows.
 */
export class HeldConnections {
  readonly #open = new Map<string, Promise<pg.Client>>();
  readonly #clients: pg.Client[] = [];
  readonly #closings: Promise<void>[] = [];
  readonly #end = Promise.withResolvers<void>();

  /** Returns the connection to a database. */
  to(url: string): Promise<pg.Client> {
    let connection = this.#open.get(url);
    if (!connection) {
      const opened = Promise.withResolvers<pg.Client>();
      const holding = withConnection(
        url,
        async client => {
          this.#clients.push(client);
          opened.resolve(client);
          await this.#end.promise;
        },
        { kind: 'move', settings: { ...canonicalTextSettings, synchronous_commit: 'on' } },
      );
      this.#closings.push(
        holding.catch(error => {
          this.#open.delete(url); // the next use tries again
          opened.reject(error);
        }),
      );
      connection = opened.promise;
      this.#open.set(url, connection);
    }

    return connection;
  }

  /** Breaks every connection off, also one whose server is silent: a running query rejects. */
  breakOff(): void {
    for (const client of this.#clients) {
      breakOff(client);
    }
  }

  async close(): Promise<void> {
    this.#end.resolve();
    await Promise.all(this.#closings);
  }
}
