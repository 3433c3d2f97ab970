import type { Logger } from 'pino';
import { findStatement, type ProcessConnection } from '../control/connection-grants.ts';
import type { TenantRecord } from '../control/records.ts';
import { describeError } from '../log/describe-error.ts';
import type { TenantDriver } from './tenant-driver.ts';

interface ConnectionEnderOptions {
  /** Finds tenants by the names of their databases. */
  findTenants: (databases: readonly string[]) => Promise<TenantRecord[]>;
  open: (tenant: TenantRecord) => TenantDriver;
  log: Logger;
}

/**
 * Ends the connections of silent processes to tenant databases. A login may end only its own connections. So for each
 * database, this takes a connection of its tenant from the grant of this process: the service needs no right to end
 * connections of anybody else.
 */
export class ConnectionEnder {
  readonly #options: ConnectionEnderOptions;
  #ending: Promise<void> | undefined;

  constructor(options: ConnectionEnderOptions) {
    this.#options = options;
  }

  /**
   * Begins to end the connections of the processes in `end` that were found and not ended yet.
   * @returns the processes that had connections
   */
  endOthers(found: readonly ProcessConnection[], end: readonly string[]): string[] {
    const databases = found
      .filter(({ process, ended }) => !ended && end.includes(process))
      .flatMap(({ database }) => (database === null ? [] : [database]));
    if (databases.length > 0)
      this.#ending ??= this.#end([...new Set(databases)], end).finally(() => {
        this.#ending = undefined;
      });
    return [...new Set(found.map(({ process }) => process))];
  }

  /** Never rejects. What fails is tried again by the next exchange. */
  async #end(databases: readonly string[], end: readonly string[]): Promise<void> {
    const { findTenants, open, log } = this.#options;
    log.warn(
      { event: 'silent_process', processes: end, databases: databases.length },
      'a process has been silent for 5 s: its connections are ended, so that its share can be used',
    );
    try {
      for (const tenant of await findTenants(databases)) await open(tenant).reads.read(findStatement(end, end));
    } catch (error) {
      log.debug({ event: 'silent_process', err: describeError(error) }, 'connections could not be ended');
    }
  }
}
