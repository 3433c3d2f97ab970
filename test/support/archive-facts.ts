import { parseArchiveName } from '../../src/operator/backup/target/archive-name.ts';
import type { Target } from '../../src/operator/backup/target/target.ts';
import type { DedicatedServer } from './dedicated-server.ts';

/** Reads and changes what tests of archives look at, on a server of their own. */
export class ArchiveFacts {
  readonly #server: DedicatedServer;

  constructor(server: DedicatedServer) {
    this.#server = server;
  }

  async guidOf(slug: string): Promise<string> {
    const [row] = await this.#server.control<{ guid: string }>(
      `select guid from tenants where slug = '${slug}'`,
    );
    return row?.guid ?? '';
  }

  /** Changes the database of a tenant, so that the next run archives it. */
  async write(slug: string): Promise<void> {
    await this.#server.sql(
      `insert into currencies (code, name) select 'X' || count(*), 'X' from currencies`,
      await this.#server.databaseOf(slug),
    );
  }

  /** Returns the names of the rows of the present target that have a state, the newest first. */
  async rowsOf(state: string): Promise<string[]> {
    const rows = await this.#server.control<{ name: string }>(
      `select a.name from archives a, installation
        where target = backup_target and state = '${state}' order by archived_at desc`,
    );
    return rows.map(({ name }) => name);
  }
}

/** Returns the names of the objects of a target that are names of archives. */
export async function archivesIn(target: Target): Promise<string[]> {
  const names = await Array.fromAsync(target.list(''), ({ name }) => name);

  return names.filter(name => parseArchiveName(name));
}
